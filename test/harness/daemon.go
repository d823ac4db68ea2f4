package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Daemon returns a path at which this process can read cmd/sunaba-agentd and
// start it. The file has no name, so that there is nothing to remove.
func Daemon(t testing.TB) string {
	t.Helper()
	fd, err := daemon()
	if err != nil {
		t.Fatal(err)
	}
	// Of self, not of a number: a child in a user namespace of its own may not
	// look at ours.
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}

var daemon = sync.OnceValues(func() (uintptr, error) {
	dir, err := os.MkdirTemp("", "sunaba-test-agentd-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "sunaba-agentd")
	if err := goBuild(ModuleRoot(), out, "./cmd/sunaba-agentd"); err != nil {
		return 0, err
	}
	f, err := os.Open(out)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// Beyond the descriptors that a child is given.
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_DUPFD_CLOEXEC, 200)
	if errno != 0 {
		return 0, fmt.Errorf("cannot duplicate descriptor: %w", errno)
	}
	return fd, nil
})
