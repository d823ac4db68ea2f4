package posture

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/posture"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// All numbers and names here are literals on purpose: they are the promise, and
// nothing of the code that keeps it is asked what it is.

// The host users of root's boxes.
const (
	firstUser = 0x70000000
	lastUser  = 0x70ffffff
)

func TestWallsOfALiveBox(t *testing.T) {
	harness.NothingLeft(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		for _, image := range []string{"host", "base"} {
			t.Run(image, func(t *testing.T) {
				l := start(t, u, "--image", image, "--memory", "300m", "--cpu", "0.5")
				if got, want := l.gofer != nil, image == "host"; got != want {
					t.Errorf("a gofer is there: %v, want %v", got, want)
				}
				l.check(t)
				before := len(l.stubs)
				l.more(t)
				if len(l.stubs) <= before {
					t.Errorf("%d stubs before four more processes, %d after", before, len(l.stubs))
				}
				l.check(t)
			})
		}
	})
}

func TestTwoBoxesShareNothing(t *testing.T) {
	harness.NothingLeft(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		a, b := start(t, u), start(t, u)
		if x, y := a.sentry.Threads[0].UID[0], b.sentry.Threads[0].UID[0]; u == harness.Root && x == y {
			t.Errorf("both boxes are host user %d", x)
		}
		for _, x := range a.inside() {
			for _, y := range b.inside() {
				for name := range x.Namespaces {
					if name != "time" && x.Namespaces[name] == y.Namespaces[name] {
						t.Errorf("%s and %s of two boxes share a %s namespace", label(x), label(y), name)
					}
				}
			}
		}
	})
}

// check compares everything.
func (l *live) check(t *testing.T) {
	t.Helper()
	outside, err := posture.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.walls() {
		for _, bad := range p.Wall(outside) {
			t.Error(bad)
		}
	}
	for _, bad := range l.runner.Unprivileged() {
		t.Error(bad)
	}
	for _, p := range l.inside() {
		l.checkUser(t, p)
		l.checkNamespaces(t, p, outside)
		l.checkGroups(t, p)
		if p.Environment != "" {
			t.Errorf("%s: environment %q", label(p), p.Environment)
		}
		if p.OOMScoreAdj != outside.OOMScoreAdj {
			t.Errorf("%s: oom_score_adj %d, the caller's is %d", label(p), p.OOMScoreAdj, outside.OOMScoreAdj)
		}
	}
	l.checkBounding(t)
	l.checkRoots(t)
	l.checkFiles(t)
	if l.user == harness.Root {
		l.checkLimits(t)
	}
}

func label(p *posture.Process) string {
	if p.Args[0] == "" {
		return fmt.Sprintf("stub %d", p.PID)
	}
	return fmt.Sprintf("%s %d", p.Args[0], p.PID)
}

// checkUser wants every thread to be the box's one host user and nobody else.
func (l *live) checkUser(t *testing.T, p *posture.Process) {
	t.Helper()
	want := os.Geteuid()
	if os.Geteuid() == 0 {
		want = harness.OrdinaryID
	}
	if l.user == harness.Root {
		want = l.runner.Threads[0].UID[0]
		if want < firstUser || want > lastUser {
			t.Errorf("host user %d is not in the range of boxes", want)
		}
	}
	for _, th := range p.Threads {
		if ids := [4]int{want, want, want, want}; th.UID != ids || l.user == harness.Root && th.GID != ids {
			t.Errorf("%s, thread %d: uid %v gid %v, want %d", label(p), th.TID, th.UID, th.GID, want)
		}
		if l.user == harness.Root && len(th.Groups) > 0 {
			t.Errorf("%s, thread %d: supplementary groups %v", label(p), th.TID, th.Groups)
		}
		if th.Effective|th.Permitted|th.Inheritable|th.Ambient != 0 || !th.NoNewPrivs || th.Tracer != 0 && th.Tracer != l.sentry.PID {
			t.Errorf("%s, thread %d: %+v", label(p), th.TID, th)
		}
		if p != l.runner && th.Seccomp != 2 {
			t.Errorf("%s, thread %d: seccomp mode %d", label(p), th.TID, th.Seccomp)
		}
	}
}

// checkBounding says what the bounding sets are. They are of no use to a
// process with no_new_privs; empty is better still.
func (l *live) checkBounding(t *testing.T) {
	t.Helper()
	for _, p := range l.walls() {
		want := uint64(0)
		if p == l.gofer {
			// chown, dac_override, dac_read_search, fowner, fsetid, sys_chroot
			want = 0x4001f
		}
		for _, th := range p.Threads {
			if th.Bounding != want {
				t.Errorf("%s, thread %d: bounding set %#x, want %#x", label(p), th.TID, th.Bounding, want)
			}
		}
	}
}

func (l *live) checkNamespaces(t *testing.T, p, outside *posture.Process) {
	t.Helper()
	if len(p.Namespaces) != 8 {
		t.Errorf("%s: namespaces %v", label(p), p.Namespaces)
	}
	for name, id := range p.Namespaces {
		if name == "time" {
			continue // the guest's kernel has clocks of its own
		}
		if id == outside.Namespaces[name] {
			t.Errorf("%s: %s namespace of the host", label(p), name)
		}
		// Gofer and sentry cannot see the runner or one another; the control
		// group namespace is the one that they all are in.
		apart := p == l.sentry && l.gofer != nil && id == l.gofer.Namespaces[name]
		apart = apart || p != l.runner && id == l.runner.Namespaces[name]
		if apart && name != "cgroup" {
			t.Errorf("%s: %s namespace of another part of the box", label(p), name)
		}
	}
	user := l.runner.Threads[0].UID[0]
	want := map[bool]string{true: fmt.Sprintf("65534 %d 1", user), false: fmt.Sprintf("1000 %d 1", user)}[p != l.runner && p != l.gofer]
	if p.UIDMap != want {
		t.Errorf("%s: user ids are mapped %q, want %q", label(p), p.UIDMap, want)
	}
}

// checkRoots looks at what of a file system is in reach.
func (l *live) checkRoots(t *testing.T) {
	t.Helper()
	for _, p := range append([]*posture.Process{l.sentry}, l.stubs...) {
		want := []posture.Mount{{Root: "/", Point: "/", Type: "tmpfs", Source: "runsc-root", Opts: "ro,relatime"}}
		if p.Root != "/" || !slices.Equal(p.Mounts, want) {
			t.Errorf("%s: root %s, mounts %+v, want the empty one alone", label(p), p.Root, p.Mounts)
		}
	}
	// The time zone is a copy; /proc is what its mount point left behind.
	if names := l.sentry.List(100); !slices.Equal(names, []string{"etc", "etc/localtime", "proc"}) {
		t.Errorf("the sentry's root holds %q", names)
	}
	if l.gofer == nil {
		return
	}
	if l.gofer.Root != "/root" || len(l.gofer.Mounts) != 1 {
		t.Errorf("gofer: root %s, mounts %+v, want /usr alone", l.gofer.Root, l.gofer.Mounts)
	}
	for _, m := range l.gofer.Mounts {
		opts := strings.Split(m.Opts, ",")
		safe := slices.Contains(opts, "ro") && slices.Contains(opts, "nosuid") && slices.Contains(opts, "nodev")
		if m.Point != "/usr" || !strings.HasSuffix(m.Root, "/usr") && m.Root != "/" || !safe {
			t.Errorf("gofer: mount %+v, want /usr, ro,nosuid,nodev", m)
		}
	}
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/*", l.gofer.PID))
	if err != nil || len(names) != 1 || filepath.Base(names[0]) != "usr" {
		t.Errorf("the gofer's root holds %q (%v)", names, err)
	}
}

// checkGroups wants root's boxes in their groups, all of them, and the helpers
// outside not.
func (l *live) checkGroups(t *testing.T, p *posture.Process) {
	t.Helper()
	checkGroup(t, p, l.user, l.id)
	for _, o := range []*posture.Process{l.front, l.janitor} {
		if strings.Contains(strings.Join(o.Groups, " "), l.id) {
			t.Errorf("%s is in the box's group", label(o))
		}
	}
}

// checkGroup wants a process of root's box in the box's group, in every tree
// that limits or counts.
func checkGroup(t *testing.T, p *posture.Process, u harness.User, id string) {
	t.Helper()
	if u != harness.Root {
		return
	}
	in := 0
	for _, line := range p.Groups {
		f := strings.SplitN(line, ":", 3)
		limited := f[1] == "" || slices.ContainsFunc(strings.Split(f[1], ","), func(c string) bool {
			return slices.Contains([]string{"memory", "cpu", "cpuacct", "pids", "freezer"}, c)
		})
		if !limited {
			continue
		}
		in++
		if !strings.HasSuffix(f[2], "/sunaba/"+id) {
			t.Errorf("%s: group %s", label(p), line)
		}
	}
	if in == 0 {
		t.Errorf("%s: no group: %q", label(p), p.Groups)
	}
}

// checkLimits reads from the live group what `--memory 300m --cpu 0.5` and the
// defaults promise: the guest's memory and 64 MiB for the runtime; half a
// processor; 32 processes of the guest at 4 host threads each and 1024 more.
func (l *live) checkLimits(t *testing.T) {
	t.Helper()
	liveLimits(t, l.id, (300+64)<<20, 32*4+1024)
}

// liveLimits compares the limits in force of a box that was asked for half a
// processor.
func liveLimits(t *testing.T, id string, memory, pids int) {
	t.Helper()
	want := map[string]string{
		"memory.limit_in_bytes": strconv.Itoa(memory), "memory.max": strconv.Itoa(memory),
		"memory.memsw.limit_in_bytes": strconv.Itoa(memory), // no swap beside it
		"cpu.cfs_quota_us":            "50000", "cpu.cfs_period_us": "100000", "cpu.max": "50000 100000",
		"pids.max":        strconv.Itoa(pids),
		"memory.swap.max": "0", "memory.swappiness": "0",
	}
	seen := map[string]bool{}
	for _, pattern := range []string{"/sys/fs/cgroup/*/sunaba/" + id, "/sys/fs/cgroup/sunaba/" + id} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			for file, value := range want {
				got, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					continue
				}
				if file == "memory.swappiness" {
					if _, err := os.Stat(filepath.Join(dir, "memory.memsw.limit_in_bytes")); err == nil {
						continue // the sum of both is limited instead
					}
				}
				seen[strings.SplitN(file, ".", 2)[0]] = true
				if s := strings.TrimSpace(string(got)); s != value {
					t.Errorf("%s/%s is %s, want %s", dir, file, s, value)
				}
			}
		}
	}
	for _, controller := range []string{"memory", "cpu", "pids"} {
		if !seen[controller] {
			t.Errorf("found no live limit of %s", controller)
		}
	}
}
