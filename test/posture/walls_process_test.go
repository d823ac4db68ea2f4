package posture

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/posture"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// As in walls_test.go, all numbers and names are literals: they are the promise.

func TestWallsOfALiveProcessBox(t *testing.T) {
	harness.NothingLeft(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		for _, image := range []string{"host", "base"} {
			t.Run(image, func(t *testing.T) {
				b := startCell(t, u, "--image", image, "--memory", "300m", "--cpu", "0.5", "--max-processes", "20")
				b.check(t)
				if len(b.programs) != 1 {
					t.Errorf("%d programs, want the shell alone", len(b.programs))
				}
				b.more(t)
				b.check(t)
				if n := len(b.programs); n != 3 || len(b.programs[2].Threads) != 4 && len(b.programs[1].Threads) != 4 {
					t.Errorf("%d programs, none of them with four threads", n)
				}
				if image == "host" {
					b.checkMounts(t)
				}
			})
		}
	})
}

func TestTwoProcessBoxesShareNothing(t *testing.T) {
	harness.NothingLeft(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		a, b := startCell(t, u), startCell(t, u)
		if x, y := a.hostUser(t), b.hostUser(t); u == harness.Root && x == y {
			t.Errorf("both boxes are host user %d", x)
		}
		for _, x := range a.inside() {
			for _, y := range b.inside() {
				for name := range x.Namespaces {
					if ofTheHost := name == "time" && (x == a.cell || y == b.cell); !ofTheHost && x.Namespaces[name] == y.Namespaces[name] {
						t.Errorf("%s and %s of two boxes share a %s namespace", label(x), label(y), name)
					}
				}
			}
		}
	})
}

// check compares everything that does not depend on the image.
func (b *cellBox) check(t *testing.T) {
	t.Helper()
	outside, err := posture.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	user := b.hostUser(t)
	for _, p := range b.inside() {
		b.checkThreads(t, p, user)
		if want := fmt.Sprintf("1000 %d 1", user); p.UIDMap != want {
			t.Errorf("%s: user ids are mapped %q, want %q", label(p), p.UIDMap, want)
		}
		if p.Root != "/" || !slices.Equal(p.Mounts, b.cell.Mounts) {
			t.Errorf("%s: root %s, %d mounts, not those of the cell", label(p), p.Root, len(p.Mounts))
		}
		if p.OOMScoreAdj != outside.OOMScoreAdj {
			t.Errorf("%s: oom_score_adj %d, the caller's is %d", label(p), p.OOMScoreAdj, outside.OOMScoreAdj)
		}
		checkGroup(t, p, b.user, b.id)
	}
	for _, p := range []*posture.Process{b.front, b.janitor} {
		if strings.Contains(strings.Join(p.Groups, " "), b.id) {
			t.Errorf("%s is in the box's group", label(p))
		}
	}
	if b.cell.Environment != "" {
		t.Errorf("the cell's environment is %q", b.cell.Environment)
	}
	b.checkNamespaces(t, outside)
	b.checkFiles(t)
	if b.user == harness.Root {
		b.checkLimits(t)
		b.checkKeyrings(t, user)
	}
}

// checkThreads wants every thread to be the box's one host user and nobody else,
// without any right, and every thread of a program under the filter. Of the
// cell, that is the one thread that starts programs: the others talk to the
// front.
func (b *cellBox) checkThreads(t *testing.T, p *posture.Process, user int) {
	t.Helper()
	filtered := 0
	for _, th := range p.Threads {
		ids := [4]int{user, user, user, user}
		if th.UID != ids || th.GID != ids && b.user == harness.Root {
			t.Errorf("%s, thread %d: uid %v gid %v, want %d", label(p), th.TID, th.UID, th.GID, user)
		}
		if len(th.Groups) > 0 && b.user == harness.Root {
			t.Errorf("%s, thread %d: supplementary groups %v", label(p), th.TID, th.Groups)
		}
		if th.Effective|th.Permitted|th.Inheritable|th.Ambient|th.Bounding != 0 || !th.NoNewPrivs || th.Tracer != 0 {
			t.Errorf("%s, thread %d: %+v", label(p), th.TID, th)
		}
		if th.Seccomp == 2 {
			filtered++
		}
	}
	want := len(p.Threads)
	if p == b.cell {
		want = 1
	}
	if filtered != want {
		t.Errorf("%s: %d of %d threads are filtered, want %d", label(p), filtered, len(p.Threads), want)
	}
}

// checkNamespaces wants eight of the box's own for every program. The cell
// itself stays in the host's time: only what it starts enters another. Programs
// have a control group namespace of theirs as well, whose root is their group.
func (b *cellBox) checkNamespaces(t *testing.T, outside *posture.Process) {
	t.Helper()
	names := []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"}
	for _, p := range b.inside() {
		if got := slices.Sorted(maps.Keys(p.Namespaces)); !slices.Equal(got, names) {
			t.Errorf("%s: namespaces %v", label(p), got)
		}
		for _, name := range names {
			id, cells, shells := p.Namespaces[name], b.cell.Namespaces[name], b.programs[0].Namespaces[name]
			if ofTheHost := name == "time" && p == b.cell; ofTheHost != (id == outside.Namespaces[name]) {
				t.Errorf("%s: its %s namespace is the host's: %v", label(p), name, !ofTheHost)
			}
			if p != b.cell && id != shells {
				t.Errorf("%s: %s namespace of its own", label(p), name)
			}
			if theirs := name == "time" || name == "cgroup"; theirs == (shells == cells) {
				t.Errorf("%s namespace: cell and programs share it: %v", name, !theirs)
			}
		}
		if p != b.cell && p.ChildTime != p.Namespaces["time"] {
			t.Errorf("%s: its children will be in time namespace %s", label(p), p.ChildTime)
		}
	}
}

// cellFiles is all that a cell has open.
func cellFiles() []string {
	return []string{
		"/dev/null r", "/dev/null w", "/dev/null w",
		"STATE/run/ID/ending w", "STATE/run/ID/ending w", // its last words, and those of a panic
		"anon_inode:[eventfd] rw", "anon_inode:[eventpoll] rw", // Go's, to wait on the next
		"unix socket rw", // the link to the front
	}
}

// checkFiles compares all open descriptors, by number where we choose it.
func (b *cellBox) checkFiles(t *testing.T) {
	t.Helper()
	var got []string
	for _, f := range b.cell.Files {
		got = append(got, strings.NewReplacer(b.state, "STATE", b.id, "ID").Replace(f.String()))
	}
	slices.Sort(got)
	if want := cellFiles(); b.cell.Hidden {
		t.Log("not compared: the cell's descriptors, which it shows to root alone")
	} else if !slices.Equal(got, want) {
		t.Errorf("the cell's descriptors are %q, want %q", got, want)
	}
	for i, p := range b.programs {
		in := "pipe r"
		if i > 0 {
			in = "/dev/null r" // what a shell gives to what it starts in the background
		}
		want := []posture.File{{FD: 0, Kind: in[:len(in)-2], Access: "r"}, {FD: 1, Kind: "pipe", Access: "w"}, {FD: 2, Kind: "pipe", Access: "w"}}
		if !slices.Equal(p.Files, want) {
			t.Errorf("%s: descriptors %v, want %v", label(p), p.Files, want)
		}
	}
}

// checkLimits reads from the live group what `--memory 300m --cpu 0.5
// --max-processes 20` promise: the programs' memory and 16 MiB for the cell; half a
// processor; 20 tasks beside those of the cell.
func (b *cellBox) checkLimits(t *testing.T) {
	t.Helper()
	liveLimits(t, b.id, (300+16)<<20, b.tasks(20))
}

// tasks is what a limit of n tasks comes to beside the cell's threads. The
// limit's number is set when the box stands; Go may start more threads later, on a
// busy machine, and those are the programs' loss. Never is it more, and the cell's
// own are never forgotten: it has three at least.
func (b *cellBox) tasks(n int) (want int) {
	want = n + len(b.cell.Threads)
	found, _ := filepath.Glob("/sys/fs/cgroup/*/sunaba/" + b.id + "/pids.max")
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if got, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && got >= n+3 && got < want {
			return got
		}
	}
	return want
}

// checkKeyrings looks at the keyrings of the box's host user, as that user: it
// has one session keyring, new and empty, that is not one of the host's.
func (b *cellBox) checkKeyrings(t *testing.T, user int) {
	t.Helper()
	cmd := exec.Command("/bin/cat", "/proc/keys")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var sessions []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 9 && f[7] == "keyring" && f[5] == fmt.Sprint(user) && strings.HasPrefix(f[8], "_ses") {
			sessions = append(sessions, strings.Join(f[8:], " "))
		}
	}
	if !slices.Equal(sessions, []string{"_ses: empty"}) {
		t.Errorf("session keyrings of user %d are %q, want one that is empty:\n%s", user, sessions, bytes.TrimSpace(out))
	}
}
