package frame

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/tier/frame/janitor"
)

// program opens true(1), which ends with 0 whatever it is asked.
func program(t *testing.T) *os.File {
	t.Helper()
	path, err := exec.LookPath("true")
	if err != nil {
		t.Skip("no true(1) on this host")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestADismissedJanitorIsNeverStarted(t *testing.T) {
	if janitor.Waiter(runtime.GOARCH) == nil {
		t.Skip("no waiter for this architecture")
	}
	g, err := startJanitor(program(t), t.TempDir(), box.NewID())
	if err != nil {
		t.Fatal(err)
	}
	if exe, err := os.Readlink("/proc/" + strconv.Itoa(g.cmd.Process.Pid) + "/exe"); err != nil || !strings.Contains(exe, "sunaba-waiter") {
		t.Errorf("a janitor that waits is %q (%v)", exe, err)
	}
	if _, err := g.front.Write([]byte{'x'}); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("a dismissed janitor ends with %v", err)
	}
	g.front.Close()
}

func TestAJanitorWhoseFrontIsGoneIsStarted(t *testing.T) {
	if janitor.Waiter(runtime.GOARCH) == nil {
		t.Skip("no waiter for this architecture")
	}
	g, err := startJanitor(program(t), t.TempDir(), box.NewID())
	if err != nil {
		t.Fatal(err)
	}
	g.front.Close()
	ended := make(chan error, 1)
	go func() { ended <- g.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil { // 127: it could not be executed
			t.Errorf("what is to clean up ends with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the janitor does not see that its front is gone")
	}
}
