package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Daemon returns a path at which this process, and children that it starts, can
// execute cmd/sunaba-agentd. The file has no name, so that there is nothing to
// remove.
func Daemon(t testing.TB) string {
	t.Helper()
	f, err := daemon()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}

var daemon = sync.OnceValues(func() (*os.File, error) {
	dir, err := os.MkdirTemp("", "sunaba-test-agentd-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "sunaba-agentd")
	if err := goBuild(ModuleRoot(), out, "./cmd/sunaba-agentd"); err != nil {
		return nil, err
	}
	return os.Open(out)
})
