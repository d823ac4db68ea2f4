package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestSignalsCancelTheRun(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			p := start(t, u, "run", "--", "sh", "-c", "trap '' INT TERM HUP; echo ready; sleep 500; sleep 500")
			p.line()
			p.signal(s)
			p.exits(250)
			if !strings.Contains(p.errs.String(), "sunaba: the run was ended: canceled\n") {
				t.Errorf("%v: standard error %q", s, p.errs.String())
			}
		}
	})
}

// awaitFile waits until a program in a box has made a file in a folder that is
// mounted.
func (p *process) awaitFile(path string) {
	p.t.Helper()
	p.waitsFor(path+" did not appear", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

func TestACanceledRunHasAReport(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		dir := harness.Dir(t, u)
		p := start(t, u, "run", "-o", "json", "--mount", dir+":/m:rw", "--", "sh", "-c", "echo 1; : > /m/ready; sleep 500")
		p.awaitFile(filepath.Join(dir, "ready"))
		p.signal(syscall.SIGTERM)
		out := p.exits(250)
		if _, err := document(out); err != nil {
			t.Fatal(err)
		}
		rep := harness.Result{Stdout: out}.JSON(t)
		if rep.Cause != box.Canceled || rep.Stdout == nil || *rep.Stdout != "1\n" || !strings.Contains(rep.OutputError, "canceled") {
			t.Errorf("the report is %s", whole(rep))
		}
	})
}

func TestABoxThatDiesIsLost(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		p := start(t, u, "run", "--", "sh", "-c", "echo ready; sleep 500")
		p.line()
		kill(t, runnerOf(t, p.cmd.Process.Pid))
		p.exits(251)
		if !strings.Contains(p.errs.String(), "sunaba: the run was ended: the box was lost") {
			t.Errorf("standard error %q", p.errs.String())
		}

		dir := harness.Dir(t, u)
		p = start(t, u, "run", "-o", "json", "--mount", dir+":/m:rw", "--", "sh", "-c", ": > /m/ready; sleep 500")
		p.awaitFile(filepath.Join(dir, "ready"))
		kill(t, runnerOf(t, p.cmd.Process.Pid))
		out := p.exits(251)
		if _, err := document(out); err != nil {
			t.Fatal(err)
		}
		if rep := (harness.Result{Stdout: out}).JSON(t); rep.Cause != box.Lost {
			t.Errorf("the report is %s", whole(rep))
		}
	})
}

// Of a box that did not come to be, too, it is told what ended it.
func TestABoxThatDiesWhileItStartsSaysHow(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		last := ""
		end := time.Now().Add(patience)
		for n := 0; n < 50 || time.Now().Before(end); n++ { // one that was up before it was found is only lost
			p := start(t, u, "run", "--", "sleep", "500")
			first := 0
			p.waitsFor("no first process", func() bool {
				// Without a pause: a box is up within milliseconds.
				for n := 0; first == 0 && n < 1000; n++ {
					first = firstOf(p.cmd.Process.Pid)
				}
				return first != 0
			})
			kill(t, first)
			<-p.done
			said := p.errs.String()
			last += said
			if strings.Contains(said, "cannot start sandbox") {
				// Between the two stands what failed, if nothing had been asked of it yet.
				if !strings.Contains(said, "cannot start sandbox: the box's first process has ended") || !strings.Contains(said, ": signal: killed\n") {
					t.Errorf("standard error %q", said)
				}
				return
			}
		}
		t.Errorf("it was never ended before it was up: %q", last)
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestKillingSunabaEndsTheBox(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t) // does the rest of this test
		dir := harness.Dir(t, u)
		p := start(t, u, "run", "--mount", dir+":/m:rw", "--", "sh", "-c", "echo ready; sleep 500")
		p.line()
		p.signal(syscall.SIGKILL)
		<-p.done
	})
}

// A sunaba that is stopped (SIGSTOP, or Ctrl-Z before it has its terminal) does
// not read its clock. The box has one of its own.
func TestTheDeadlineHoldsWhileSunabaIsStopped(t *testing.T) {
	for tier, flags := range map[string][]string{"gvisor": nil, "process": {"--trust", "trusted", "--disk", "100m"}} {
		t.Run(tier, func(t *testing.T) {
			harness.EachUser(t, func(t *testing.T, u harness.User) {
				harness.NothingLeft(t)
				// The box has to be there when sunaba stands still: on a busy host that takes a
				// longer deadline.
				for deadline := 2; !deadlineHolds(t, u, flags, deadline); deadline *= 2 {
					if deadline > 60 {
						t.Fatalf("a box ended by a deadline of %d s before this test could stop sunaba", deadline)
					}
				}
			})
		})
	}
}

// deadlineHolds stops a sunaba whose box has a deadline. It returns false if that
// box had ended before sunaba was stopped.
func deadlineHolds(t *testing.T, u harness.User, flags []string, deadline int) bool {
	t.Helper()
	dir := harness.Dir(t, u)
	args := append([]string{"run", "-o", "json", "--timeout", strconv.Itoa(deadline), "--grace", "0.1"}, flags...)
	p := start(t, u, append(args, "--mount", dir+":/m:rw", "--", "sh", "-c", ": > /m/ready; while :; do :; done")...)
	// It runs, or its deadline came first.
	err := await(p.done, func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil
	})
	stopped := err == nil && stop(p) && firstOf(p.cmd.Process.Pid) != 0
	if stopped {
		err = await(nil, func() bool { return firstOf(p.cmd.Process.Pid) == 0 })
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // it runs, or has ended, if it was not stopped
	if stopped && err != nil {
		t.Fatalf("the box runs on while sunaba is stopped: %v", err)
	}
	rep := harness.Result{Stdout: p.exits(244), Stderr: p.errs.String()}.JSON(t)
	if rep.Cause != box.Deadline || len(rep.LimitsHit) != 1 || rep.LimitsHit[0].Limit != "timeout_sec" || !rep.LimitsHit[0].Ended {
		t.Fatalf("the report is %s", whole(rep))
	}
	return stopped
}

// stop stops a sunaba and waits until it stands still, or has ended: then it
// returns false.
func stop(p *process) bool {
	if p.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return false
	}
	return await(p.done, func() bool {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/stat")
		state := b[bytes.LastIndexByte(b, ')')+1:] // behind the name: proc_pid_stat(5)
		return bytes.HasPrefix(state, []byte(" T "))
	}) == nil
}

// firstOf is the first process of the box of a sunaba, or 0 if none is alive:
// one that has ended waits for a parent that is stopped.
func firstOf(pid int) int {
	for _, name := range []string{"sunaba-runner", "sunaba-cell"} {
		for _, child := range childrenOf(pid, name) {
			return child
		}
	}
	return 0
}
