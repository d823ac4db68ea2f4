// Package upstream is the world that boxes of tests reach: a process in a network
// namespace of its own, which is reached by one pair of interfaces from the namespace
// that the tests run in. It has public addresses, private ones, and that of clouds'
// metadata service, answers for names, and writes down every packet, question,
// connection and byte that comes.
//
// A test program that uses it runs in a fresh network namespace, which takes root. No
// address outside of the two namespaces is spoken to.
package upstream

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// inside marks the process in the fresh namespace.
const inside = "SUNABA_TEST_UPSTREAM_INSIDE"

// outer is the world, of a process in the namespace.
var outer = sync.OnceValues(setUp)

// Main is for TestMain: it runs the tests in a fresh network namespace, whose loopback
// interface is up, and returns their exit code. Without root it runs them where they are.
func Main(run func() int) int {
	switch {
	case os.Args[0] == argvWorld:
		if err := worldMain(); err != nil {
			fmt.Fprintln(os.Stderr, "world:", err)
			return 1
		}
		return 0
	case os.Geteuid() != 0:
		return run()
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
	if err := ip("link set lo up"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}

// Shell has two functions for programs in boxes. `get NAME` prints what a name says
// that is asked for by plain HTTP, which is the name, or "no" if it says nothing; `gets
// TIMES NAME` is patient.
const Shell = `get() { timeout 5 bash -c 'exec 3<>/dev/tcp/$0/80 && printf "GET /say/$0 HTTP/1.1\r\nHost: $0\r\nConnection: close\r\n\r\n" >&3 && tail -n 1 <&3' $1 2>/dev/null || printf no; }
gets() { for i in $(seq $1); do a=$(get $2); [ "$a" = no ] || break; sleep 0.2; done; printf $a; }
`

// Here reports whether there is a world: whether the tests are root's.
func Here() bool { return os.Getenv(inside) != "" }

// Of returns the world, and skips the test where there can be none.
func Of(t testing.TB) *Farm {
	t.Helper()
	if !Here() {
		t.Skip("a world in network namespaces takes root")
	}
	f, err := outer()
	if err != nil {
		t.Fatalf("cannot make the world: %v", err)
	}
	return f
}
