// As in the program itself: see cmd/sunaba.
//
//go:debug containermaxprocs=0

package tiertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
)

func TestMain(m *testing.M) {
	if code, ok := process.Dispatch(os.Args); ok {
		os.Exit(code)
	}
	slowStub(os.Args)
	gvisor.Dispatch(os.Args)
	if os.Args[0] == argvFront {
		os.Exit(frontMain(os.Args[1:]))
	}
	code := m.Run()
	if programs.dir != "" {
		os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}

// programsEnv names a folder with the built agents, for a process that cannot
// build them.
const programsEnv = "SUNABA_TEST_PROGRAMS"

var programs struct {
	once sync.Once
	dir  string // to be removed
	path string
	err  error
}

// built returns the folder with the agents, which are built the way make does.
func built() (string, error) {
	p := &programs
	p.once.Do(func() {
		if p.path = os.Getenv(programsEnv); p.path != "" {
			return
		}
		if p.dir, p.err = os.MkdirTemp("/var/tmp", "sunaba-tiertest-bin-"); p.err != nil {
			return
		}
		p.path = p.dir
		p.err = os.Chmod(p.dir, 0o755)
		for _, name := range []string{"sunaba-agent", "sunaba-agentd"} {
			cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(p.dir, name), "github.com/sunaba-dev/sunaba/cmd/"+name)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+runtime.GOARCH)
			if b, err := cmd.CombinedOutput(); err != nil {
				p.err = errors.Join(p.err, errors.New(string(b)))
			}
		}
	})
	return p.path, p.err
}

// standing is what both tiers are, beside box.Tier.
type standing interface {
	box.Tier
	SweepLasting(context.Context, func(box.ID) bool) ([]box.ID, error)
	HostUser(box.ID) (uid, gid int)
	Close() error
}

// makeTier makes a tier on a state folder, as a process that was just started
// does.
func makeTier(name box.TierName, state string) (standing, *cgroup.Manager, error) {
	dir, err := built()
	if err != nil {
		return nil, nil, err
	}
	var parts [2]*io.SectionReader
	for i, program := range []string{"sunaba-agent", "sunaba-agentd"} {
		b, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return nil, nil, err
		}
		parts[i] = io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))
	}
	images, err := image.OpenStore(filepath.Join(state, "images"))
	if err != nil {
		return nil, nil, err
	}
	groups, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		return nil, nil, err
	}
	var t standing
	if name == box.TierProcess {
		t, err = process.New(process.Config{State: state, Images: frame.Images{Store: images}, Groups: groups, Agent: parts[0], Daemon: parts[1]})
	} else {
		t, err = gvisor.New(gvisor.Config{State: state, Images: frame.Images{Store: images}, Groups: groups, Agent: parts[0], Daemon: parts[1]})
	}
	return t, groups, err
}

// place is a state folder of one test, and one tier on it.
type place struct {
	standing
	state  string
	groups *cgroup.Manager
}

// patience is how long something is waited for that comes at last: many times what
// it takes on a host that has time for it.
const patience = 2 * time.Minute

// comes calls fn until it has nothing to complain of, and returns its last
// complaint when patience is at its end.
func comes(fn func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := fn()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// later is comes for what may be unavailable now: any other error is the last one.
func later(fn func() error) (last error) {
	if err := comes(func() error {
		if last = fn(); box.KindOf(last) == box.Unavailable {
			return last
		}
		return nil
	}); err != nil {
		return err
	}
	return last
}

// eachTier runs fn for every tier, each in a place of its own, of which nothing
// may be left afterwards.
func eachTier(t *testing.T, fn func(t *testing.T, p *place)) {
	for _, name := range []box.TierName{box.TierProcess, box.TierGvisor} {
		t.Run(string(name), func(t *testing.T) {
			p := newPlace(t, name)
			fn(t, p)
			p.empty(t)
		})
	}
}

func newPlace(t *testing.T, name box.TierName) *place {
	t.Helper()
	state, err := os.MkdirTemp("/var/tmp", "sunaba-tiertest-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(state, 0o711); err != nil {
		t.Fatal(err)
	}
	p := &place{state: state}
	t.Cleanup(func() {
		// Extracted images have no write bits, not even for their owner.
		_ = filepath.WalkDir(state, func(f string, e os.DirEntry, _ error) error {
			if e != nil && e.IsDir() {
				_ = os.Chmod(f, 0o700)
			}
			return nil
		})
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	if p.standing, p.groups, err = makeTier(name, state); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	// Whatever a test that failed has left.
	t.Cleanup(func() {
		_, _ = p.SweepLasting(context.Background(), func(box.ID) bool { return false })
	})
	return p
}

// empty fails if there is a box on the place, or anything of one.
func (p *place) empty(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"boxes", "run", "store"} {
		left, err := os.ReadDir(filepath.Join(p.state, dir))
		left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return !box.ID(e.Name()).Valid() && dir != "store" })
		if err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("%s holds %v (%v)", dir, left, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), p.state) {
		t.Errorf("a mount is left (%v)", err)
	}
	// A loop device goes when the kernel has taken down the last mount of it.
	if err := comes(func() error {
		if loops := p.loops(t); len(loops) > 0 {
			return fmt.Errorf("loop devices are left: %v", loops)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// loops lists the loop devices with a file of the place.
func (p *place) loops(t *testing.T) (on []string) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), p.state+"/") {
			on = append(on, f)
		}
	}
	return on
}

// gone fails if a process or the group of a box is there.
func (p *place) gone(t *testing.T, id box.ID, pid int) {
	t.Helper()
	// Who took over a dead front's children may take a moment to wait for them.
	if err := comes(func() error {
		if alive(pid) {
			return fmt.Errorf("process %d is left", pid)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if p.groups == nil {
		return
	}
	if _, err := p.groups.Open(string(id)); err == nil {
		t.Error("the control group is left")
	}
}

// alive reports whether a process is there and not merely waited for.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+1:]), " Z")
}

func spec() box.Spec {
	return box.Spec{
		ID: box.NewID(), Image: box.ImageHost, Workdir: "/workspace", Hostname: "sunaba", Net: box.Net{Mode: box.NetNone}, Lasting: true,
		Limits: box.Limits{
			MilliCPU: 2000, Memory: 192 << 20, Processes: 64, OpenFiles: 256, Disk: 32 << 20, Files: 500, OnLimit: box.LimitRecord,
		},
	}
}

// create makes a box.
func (p *place) create(t *testing.T, s box.Spec) box.Lasting {
	t.Helper()
	b, err := p.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	l, ok := b.(box.Lasting)
	if !ok {
		t.Fatalf("what Create made of a lasting spec is %T", b)
	}
	return l
}

// unhurried is for guests of a host that has no time for them: what is asked of them
// is answered at last.
var unhurried = guest.Options{Call: patience, Silence: patience}

// use returns a box's guest, on a stream of its own.
func use(t *testing.T, b box.Lasting) *guest.Guest {
	t.Helper()
	g := guest.New(b.Agent, unhurried)
	t.Cleanup(g.Close)
	return g
}

// start starts a program in a box.
func start(t *testing.T, g box.Guest, argv ...string) box.Process {
	t.Helper()
	p, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ended waits for a program's end and returns it with what it wrote.
func ended(t *testing.T, g box.Guest, pid int) (end box.End, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := g.Follow(ctx, box.ProcessRef{PID: pid}, box.Positions{}, func(e box.ProcessEvent) error {
		out += string(e.Data)
		if e.End != nil {
			end = *e.End
		}
		return nil
	})
	if err != nil {
		t.Fatalf("cannot follow %d, which said %q: %v", pid, out, err)
	}
	return end, out
}

// run runs a shell script in a box.
func run(t *testing.T, g box.Guest, script string) string {
	t.Helper()
	end, out := ended(t, g, start(t, g, "sh", "-c", script).PID)
	if end.Cause != box.Exited || end.ExitCode != 0 {
		t.Errorf("%s: %+v, %q", script, end, out)
	}
	return out
}

// destroy ends a box, of which nothing may be left.
func (p *place) destroy(t *testing.T, b box.Lasting) {
	t.Helper()
	pid := firstOf(t, b.State()).PID
	for by := time.Now().Add(patience); ; {
		err := b.Destroy(context.WithoutCancel(t.Context()))
		if (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.EBUSY)) && time.Now().Before(by) {
			t.Logf("once more, as its owner does: %v", err) // this host has no time to end it
			continue
		}
		if err != nil {
			t.Error(err)
		}
		break
	}
	p.gone(t, b.ID(), pid)
	select {
	case <-b.Ended():
	case <-time.After(patience):
		t.Error("a box that was destroyed has not ended")
	}
}

// Everything again as an ordinary user, in a process of its own.
func TestAllOfItHoldsForAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this process is one already")
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.count=1"}
	if f := os.Getenv("SUNABA_TEST_RUN"); f != "" {
		args = append(args, "-test.run="+f)
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "tiertest" // another name is that of a part of a box
	cmd.Dir = "/"
	cmd.Env = []string{programsEnv + "=" + dir, "PATH=/usr/bin:/bin", "TMPDIR=/var/tmp"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(out, []byte("\n    --- PASS")) < 2 {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
