package host

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespace is a set of kernel namespaces to try; see namespaces(7).
type Namespace uintptr

// Namespaces that a box is made of. NamespaceBox is all that its first process
// gets, NamespaceNone no namespace at all.
const (
	NamespaceNone   Namespace = 0
	NamespaceUser   Namespace = unix.CLONE_NEWUSER
	NamespaceMount  Namespace = unix.CLONE_NEWNS
	NamespacePID    Namespace = unix.CLONE_NEWPID
	NamespaceIPC    Namespace = unix.CLONE_NEWIPC
	NamespaceUTS    Namespace = unix.CLONE_NEWUTS
	NamespaceCgroup Namespace = unix.CLONE_NEWCGROUP
	NamespaceNet    Namespace = unix.CLONE_NEWNET
	NamespaceBox    Namespace = boxNamespaces
)

// maxTried bounds what a tried child may say, in bytes.
const maxTried = 64 << 10

// Try runs the child to its end in a user namespace like a box's and in the
// given further ones, and returns its standard output. With NamespaceNone it
// runs as HostUID itself, in the caller's namespaces and without capabilities.
// An error of the start wraps the kernel's, as in ENOSPC for a user namespace
// over user.max_user_namespaces.
func (s Spawn) Try(ctx context.Context, ns Namespace) ([]byte, error) {
	if s.HostUID == 0 || s.HostGID == 0 {
		return nil, fmt.Errorf("cannot try a box process: host uid 0 is never used behind a box")
	}
	cmd := s.command(uintptr(ns | NamespaceUser))
	if ns == NamespaceNone {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if IsRoot() {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(s.HostUID), Gid: uint32(s.HostGID)}
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make pipe: %w", err)
	}
	defer r.Close()
	cmd.Stdout = w
	// The parent-death signal is tied to the thread; see Spawn.Start.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	return finish(ctx, cmd, r)
}

// finish reads a started child's output and waits for it; it kills the child
// when ctx ends.
func finish(ctx context.Context, cmd *exec.Cmd, r *os.File) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	var out bytes.Buffer
	_, rerr := out.ReadFrom(&limited{r, maxTried})
	if rerr != nil {
		_ = cmd.Process.Kill()
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return out.Bytes(), err
	}
	return out.Bytes(), rerr
}

// limited fails once more than n bytes were read.
type limited struct {
	f *os.File
	n int
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.f.Read(p)
	if l.n -= n; l.n < 0 {
		return 0, fmt.Errorf("cannot read from child: more than %d bytes", maxTried)
	}
	return n, err
}
