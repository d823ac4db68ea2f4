// Package parked keeps a child process that exists and does nothing.
//
// Some kernel objects can only be reached through a process: a user namespace
// with a given mapping, or the proof that a control group accepts a member. A
// library cannot fork without exec in Go, and should not count on /bin/cat being
// there. So the child is this very program under ptrace(2): a traced process
// stops at the end of execve(2), before its first instruction, and stays there
// until it is killed. That needs nothing of the program's main function.
//
// Where ptrace is forbidden (Yama's ptrace_scope of 2 and 3, some seccomp
// profiles) the child runs and waits, which main has to help with: see [Argv].
package parked

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Argv is the child's name. Programs whose users must not depend on ptrace hand
// a start under this name to [Main].
const Argv = "parked"

// Main waits until the parent has no more use for this process, or is gone.
func Main() int {
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// Run starts the child with the given attributes (nil for none), calls use with
// its process id, and kills and reaps it when use returns. The child has an
// empty environment. use runs on the calling goroutine, which is locked to its
// thread meanwhile: if a tracing thread ended, the child would be let go.
func Run(attr *syscall.SysProcAttr, use func(pid int) error) error {
	err := Traced(attr, use)
	if !errors.Is(err, errStart) || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	wait, stay, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot make pipe: %w", err)
	}
	defer wait.Close()
	defer stay.Close()
	return run(attr, false, wait, use)
}

// Traced is Run for those who need ptrace(2) to work.
func Traced(attr *syscall.SysProcAttr, use func(pid int) error) error {
	return run(attr, true, nil, use)
}

var errStart = errors.New("cannot park a process")

func run(attr *syscall.SysProcAttr, traced bool, stdin *os.File, use func(pid int) error) error {
	own := syscall.SysProcAttr{}
	if attr != nil {
		own = *attr
	}
	own.Ptrace, own.Pdeathsig = traced, syscall.SIGKILL
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{Argv, "-test.run=^$"}, // a test program that knows no Argv ends at once
		Env:         []string{},
		Dir:         "/",
		SysProcAttr: &own,
	}
	if stdin != nil {
		cmd.Stdin = stdin
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errStart, err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	return use(cmd.Process.Pid)
}
