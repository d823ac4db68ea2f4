//go:build faultpoints

package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
)

// plan is what was read at the start.
type plan struct {
	name   string
	victim string
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
		if _, err := fmt.Sscan(string(b), &p.name, &n, &p.victim); err != nil {
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
		if p.victim == Gateway {
			killGateways()
			return
		}
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // nothing more is done until it comes
	}
}

// killGateways kills the gateways that are children of this process: proc_pid_stat(5).
func killGateways() {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range all {
		b, _ := os.ReadFile(name)
		var pid, parent int
		var state string
		// A name in parentheses is the second field, and may have spaces in it.
		if _, err := fmt.Sscan(string(b), &pid); err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(b[strings.LastIndexByte(string(b), ')')+1:]), &state, &parent); err != nil || parent != os.Getpid() {
			continue
		}
		if line, _ := os.ReadFile(filepath.Dir(name) + "/cmdline"); strings.HasPrefix(string(line), "sunaba-gate\x00") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
