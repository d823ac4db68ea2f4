// Package parked keeps a child process that exists and runs no code.
//
// Some kernel objects can only be reached through a process: a user namespace
// with a given mapping, or the proof that a control group accepts a member. A
// library cannot fork without exec in Go, should not count on /bin/cat being
// there, and cannot re-execute a main function that is not its own. So the
// child is this very program under ptrace(2): a traced process stops at the end
// of execve(2), before its first instruction, and stays there until it is
// killed.
package parked

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// Run starts the child with the given attributes (nil for none), calls use with
// its process id, and kills and reaps it when use returns. The child has an
// empty environment and /dev/null three times. use runs on the calling goroutine,
// which is locked to its thread meanwhile: if the tracing thread ended, the
// child would be let go.
//
// It fails where ptrace(2) is forbidden (Yama's ptrace_scope 3, some seccomp
// profiles).
func Run(attr *syscall.SysProcAttr, use func(pid int) error) error {
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Ptrace = true
	attr.Pdeathsig = syscall.SIGKILL
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{"parked"},
		Env:         []string{},
		Dir:         "/",
		SysProcAttr: attr,
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot park a process: %w", err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	return use(cmd.Process.Pid)
}
