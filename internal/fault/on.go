//go:build faultpoints

package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// plan is what was read at the start.
type plan struct {
	name   string
	left   atomic.Int64 // passages until the end
	passed *os.File
}

var armed atomic.Pointer[plan] //house:const of test builds alone; set once, before anything is at work

// Watch has [Here] look at the folder of that state folder. Without such a
// folder it does nothing.
func Watch(state string) {
	dir := filepath.Join(state, Folder)
	f, err := os.OpenFile(filepath.Join(dir, Passed), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	p := &plan{passed: f}
	if b, err := os.ReadFile(filepath.Join(dir, Kill)); err == nil {
		var n int64
		if _, err := fmt.Sscan(string(b), &p.name, &n); err != nil {
			panic(fmt.Sprintf("cannot read fault %q: %v", b, err))
		}
		p.left.Store(n)
	}
	armed.Store(p)
}

// Here marks a moment, and ends the process if it is the one.
func Here(name string) {
	p := armed.Load()
	if p == nil {
		return
	}
	// A write of one line with O_APPEND is whole, and is the kernel's as soon as it
	// returns: whatever happens to this process.
	_, _ = p.passed.WriteString(name + "\n")
	if name == p.name && p.left.Add(-1) == 0 {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // nothing more is done until it comes
	}
}
