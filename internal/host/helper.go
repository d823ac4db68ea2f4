package host

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Helper describes a child that re-executes this program for a part of its work, in
// the host's own namespaces, with an empty environment and no standard input. It
// ends when this process does.
type Helper struct {
	Args  []string
	Files []*os.File // descriptors 3, 4, ... of the child
	// UID and GID are what the child is, without further groups; 0 for the caller's
	// own, as an ordinary user must.
	UID, GID int
	Stderr   *os.File // nil for none
}

// Start starts it. It holds one operating-system thread until the child ends: see
// PR_SET_PDEATHSIG in prctl(2).
func (h Helper) Start() (*Child, error) {
	if err := KeepFiles(); err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: SelfExe, Args: h.Args, Env: []string{}, Dir: "/", ExtraFiles: h.Files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if h.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(h.UID), Gid: uint32(h.GID)}
	}
	if h.Stderr != nil {
		cmd.Stderr = h.Stderr
	}
	c := &Child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread lives as long as the child
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", h.Args[0], err)
	}
	c.pid, c.kill = cmd.Process.Pid, func() { _ = cmd.Process.Kill() }
	return c, nil
}
