package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestSignalsCancelTheRun(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
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
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s did not appear", path)
}

func TestACanceledRunHasAReport(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		dir := harness.Dir(t, u)
		p := start(t, u, "run", "-o", "json", "--mount", dir+":/m:rw", "--", "sh", "-c", "echo 1; : > /m/ready; sleep 500")
		awaitFile(t, filepath.Join(dir, "ready"))
		p.signal(syscall.SIGTERM)
		out := p.exits(250)
		if _, err := document(out); err != nil {
			t.Fatal(err)
		}
		rep := harness.Result{Stdout: out}.JSON(t)
		if rep.Cause != box.Canceled || rep.Stdout == nil || *rep.Stdout != "1\n" || !strings.Contains(rep.OutputError, "canceled") {
			t.Errorf("cause %q, stdout %v, output error %q", rep.Cause, rep.Stdout, rep.OutputError)
		}
	})
}

func TestABoxThatDiesIsLost(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
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
		awaitFile(t, filepath.Join(dir, "ready"))
		kill(t, runnerOf(t, p.cmd.Process.Pid))
		out := p.exits(251)
		if _, err := document(out); err != nil {
			t.Fatal(err)
		}
		if rep := (harness.Result{Stdout: out}).JSON(t); rep.Cause != box.Lost {
			t.Errorf("cause %q", rep.Cause)
		}
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestKillingSunabaEndsTheBox(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t) // does the rest of this test
		dir := harness.Dir(t, u)
		p := start(t, u, "run", "--mount", dir+":/m:rw", "--", "sh", "-c", "echo ready; sleep 500")
		p.line()
		p.signal(syscall.SIGKILL)
		_ = p.cmd.Wait()
	})
}
