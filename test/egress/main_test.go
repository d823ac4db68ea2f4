// Package egress attacks the gateway from inside real boxes: both tiers, as root and
// as an ordinary user, against a world in a network namespace of its own that writes
// down what reaches it. Each denial is paired with the same bytes where they are
// allowed and have to arrive, so that a world that nobody reaches fails the test.
//
// The tests run in a fresh network namespace, which takes root. No address outside of
// the two namespaces is spoken to.
package egress

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// inside marks the process in the fresh namespace.
const inside = "SUNABA_TEST_EGRESS_INSIDE"

// outer is the world, of a process in the namespace.
var outer = sync.OnceValues(setUp)

func TestMain(m *testing.M) { os.Exit(mainCode(m)) }

func mainCode(m *testing.M) int {
	switch {
	case os.Args[0] == argvWorld:
		if err := worldMain(); err != nil {
			fmt.Fprintln(os.Stderr, "world:", err)
			return 1
		}
		return 0
	case os.Geteuid() != 0:
		return m.Run() // every test says why it is skipped
	case os.Getenv(inside) == "":
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		err := cmd.Run()
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			return e.ExitCode()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	return harness.Main(m)
}

// theWorld is for tests, which need it.
func theWorld(t *testing.T) *farm {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Skip("a world in network namespaces takes root")
	}
	f, err := outer()
	if err != nil {
		t.Fatalf("cannot make the world: %v", err)
	}
	return f
}
