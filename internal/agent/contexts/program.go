package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Program is an interpreter to start. It leads a session of its own, so that
// its number is also that of its process group.
type Program struct {
	// Argv[0] is looked up in PATH of Env if it has no slash.
	Argv []string
	Env  []string // the whole environment
	Dir  string   // absolute, and a folder
	User string   // as in agent.proto
	// Descriptors 0 to 2 of the program; nil reads as empty.
	Stdin, Stdout, Stderr *os.File
	// Extra are its descriptors from 3 on. All files stay the caller's to close,
	// and are blocking: (*os.File).Fd sees to that.
	Extra []*os.File
}

// Running is a program that was started.
type Running interface {
	PID() int
	// Signal sends to the program alone, or to its whole process group.
	Signal(sig syscall.Signal, group bool) error
	// Wait returns when the program has ended. It is called once.
	Wait() (syscall.WaitStatus, error)
}

// Starter starts a program. The error wraps [fs.ErrNotExist] if there is no
// such program, [fs.ErrPermission] if the user may not start it.
type Starter func(Program) (Running, error)

// DefaultPath is where programs are looked up if Env has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Exec is a Starter for a process that reaps no children itself. It knows no
// user but the one that it runs as.
func Exec(p Program) (Running, error) {
	if p.User != "" && p.User != "user" {
		return nil, fmt.Errorf("cannot start a program as user %q: this agent switches no users", p.User)
	}
	path, err := lookUp(p.Argv[0], p.Env)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: p.Argv, Env: p.Env, Dir: p.Dir, ExtraFiles: p.Extra,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	// A nil *os.File in an interface is not nil.
	if p.Stdin != nil {
		cmd.Stdin = p.Stdin
	}
	if p.Stdout != nil {
		cmd.Stdout = p.Stdout
	}
	if p.Stderr != nil {
		cmd.Stderr = p.Stderr
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.Argv[0], err)
	}
	return &child{cmd}, nil
}

// lookUp finds a program in the PATH that it will have, not in ours.
func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := DefaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		p := filepath.Join(dir, name)
		if !filepath.IsAbs(p) {
			continue
		}
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("cannot find %s in %s: %w", name, path, fs.ErrNotExist)
}

// child is a program that [Exec] started.
type child struct{ cmd *exec.Cmd }

func (c *child) PID() int { return c.cmd.Process.Pid }

func (c *child) Signal(sig syscall.Signal, group bool) error {
	if !group {
		return c.cmd.Process.Signal(sig)
	}
	// The group's number is free for others only when its leader was waited for
	// and no member is left. Whoever is left is what we mean, so a group that
	// outlived its leader can be ended too.
	err := syscall.Kill(-c.PID(), sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func (c *child) Wait() (syscall.WaitStatus, error) {
	err := c.cmd.Wait()
	if c.cmd.ProcessState == nil {
		return 0, fmt.Errorf("cannot wait for %s: %w", c.cmd.Path, err)
	}
	return c.cmd.ProcessState.Sys().(syscall.WaitStatus), nil
}
