package contexts

import (
	"os"
	"syscall"
	"testing"
)

// fake is a program that can be ended and does nothing else.
type fake struct{ killed bool }

func (f *fake) PID() int                          { return 1 << 30 }
func (f *fake) Signal(syscall.Signal, bool) error { f.killed = true; return nil }
func (f *fake) Wait() (syscall.WaitStatus, error) { return 0, nil }

func pipes(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}
