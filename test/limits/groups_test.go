package limits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// eachAs runs fn on both tiers for one user, if this test process is root.
func eachAs(t *testing.T, u harness.User, fn func(t *testing.T, p place)) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make control groups and give them away")
	}
	for _, tier := range []box.TierName{box.TierGvisor, box.TierProcess} {
		t.Run(string(tier), func(t *testing.T) {
			harness.NothingLeft(t)
			fn(t, place{tier, u})
		})
	}
}

// subtree is a control group of the test's own in every hierarchy of the host,
// within which sunaba is started: it sees nothing above it.
type subtree struct {
	name string
	dirs []string // as the host has them
}

// newSubtree makes one that belongs to a user.
func newSubtree(t *testing.T, u harness.User) subtree {
	t.Helper()
	s := subtree{name: fmt.Sprintf("sunaba-limits-test-%d", os.Getpid())}
	tops := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		procs, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		tops = nil
		for _, p := range procs {
			if !strings.Contains(p, "cpuset") { // its groups take no process before they are set up
				tops = append(tops, filepath.Dir(p))
			}
		}
	} else if on, _ := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control"); !strings.Contains(string(on), "memory") {
		t.Skip("this host gives its control groups of version 2 no memory controller; the rules are tested on a tree of our own making")
	}
	for _, top := range tops {
		d := filepath.Join(top, s.name)
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.remove(t, d) })
		s.dirs = append(s.dirs, d)
		if u == harness.Ordinary {
			for _, f := range []string{"", "cgroup.procs", "tasks", "cgroup.subtree_control", "cgroup.threads"} {
				if err := os.Chown(filepath.Join(d, f), harness.OrdinaryID, harness.OrdinaryID); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
		}
	}
	return s
}

// remove removes a group that the test made, once the kernel lets it.
func (s subtree) remove(t *testing.T, dir string) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Rmdir(dir)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind: group %s: %v", dir, err)
			return
		}
	}
}

// set writes a file of the one hierarchy that has it.
func (s subtree) set(t *testing.T, value string, files ...string) {
	t.Helper()
	for _, d := range s.dirs {
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(d, f), []byte(value), 0); err == nil {
				return
			}
		}
	}
	t.Fatalf("no hierarchy has %v", files)
}

// run is run within the subtree: in a mount namespace where it is the top.
func (s subtree) run(t *testing.T, p place, args ...string) end {
	t.Helper()
	tries, deadline := 1, time.Now().Add(3*time.Minute)
	for ; tries <= 5 || time.Now().Before(deadline); tries++ {
		if e, ok := s.try(t, p, args...); ok {
			return e
		}
	}
	t.Fatalf("%d times the kernel chose sunaba itself", tries-1)
	return end{}
}

// try is false if the kernel, in want of memory for the subtree, killed sunaba,
// which is in it, too: what it killed first may take a moment to give it back.
func (s subtree) try(t *testing.T, p place, args ...string) (end, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := harness.Command(ctx, t, p.user, p.run(append([]string{"-o", "json"}, args...)...)...)
	const script = `for d in $DIRS; do echo $$ >$d/cgroup.procs || exit 99; done
for d in $DIRS; do mount --bind $d ${d%/*} || exit 99; done
unset DIRS; exec "$@"`
	line := []string{"sh", "-c", script, "sh"}
	if cmd.SysProcAttr != nil {
		id := fmt.Sprint(harness.OrdinaryID)
		line = append(line, "setpriv", "--reuid", id, "--regid", id, "--clear-groups")
	}
	cmd.Args = append(append(line, cmd.Path), cmd.Args[1:]...)
	cmd.Path, cmd.Dir = "/bin/sh", "/"
	cmd.Env = append(cmd.Env, "DIRS="+strings.Join(s.dirs, " "))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // and private, see syscall
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal("cannot start sunaba")
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL && ctx.Err() == nil {
		return end{}, false
	}
	return p.ended(t, harness.Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String()}, args), true
}

// An ordinary user to whom control groups were given has all limits firm, and
// none of what stands in for them.
func TestDelegatedGroupsMakeAnOrdinaryUsersLimitsFirm(t *testing.T) {
	eachAs(t, harness.Ordinary, func(t *testing.T, p place) {
		s := newSubtree(t, p.user)
		firm := func(e end, cause box.Cause, code int, hits ...box.LimitHit) {
			t.Helper()
			if len(e.Weak) > 0 {
				t.Errorf("weak is %q", e.Weak)
			}
			e.Weak = []string{"cpu:", "memory:"} // what check would expect without groups
			e.check(t, cause, code, hits...)
		}
		e := s.run(t, p, "--", "sh", "-c", `ulimit -v`)
		firm(e, box.Exited, 0)
		if e.stdout() != "unlimited\n" {
			t.Errorf("a limit of address space stands in for a control group: %s", e.stdout())
		}
		e = s.run(t, p, "--memory", "64m", "--lang", "python", "-e", `x = bytearray(400 << 20)`)
		firm(e, box.OutOfMemory, 246, ended("memory", "host cgroup v"))
		counted := p.hit("max_processes")
		if p.tier == box.TierProcess {
			counted.Source = "host cgroup v"
		}
		hits := []box.LimitHit{counted, p.hit("max_open_files")}
		e = held(t, p, countTasks, hits, func(code string) end {
			return s.run(t, p, "--max-processes", "8", "--lang", "python", "-e", code)
		})
		firm(e, box.Exited, 0, hits...)
		if !strings.HasPrefix(e.stdout(), "children 7\nthreads 7\n") {
			t.Errorf("with 8 processes: %q", e.stdout())
		}
	})
}

// A box within its limit may be killed in because there is no memory above it.
// That is not its doing, and not told as such.
func TestKillForWantOfMemoryElsewhereIsNotTheBoxesOwn(t *testing.T) {
	eachAs(t, harness.Root, func(t *testing.T, p place) {
		s := newSubtree(t, p.user)
		s.set(t, "200M", "memory.limit_in_bytes", "memory.max")
		args := []string{"--memory", "1g", "--lang", "python", "-e", `x = bytearray(600 << 20)`}
		if p.tier == box.TierProcess {
			s.run(t, p, args...).check(t, box.Signaled, 137)
		} else {
			s.run(t, p, args...).check(t, box.Lost, 251) // the sentry was killed
		}
		// The box's own limit, below the other, is told as ever.
		e := s.run(t, p, "--memory", "64m", "--lang", "python", "-e", `x = bytearray(600 << 20)`)
		e.check(t, box.OutOfMemory, 246, ended("memory", "host cgroup v"))
	})
}
