package host

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

// BoxUser is the id that a box's own processes have inside its user namespace,
// and the id of the ordinary user in the guest. It has no meaning outside.
const BoxUser = 1000

// boxNamespaces are those of a box's first process.
const boxNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Spawn describes a child that re-executes this program in namespaces of its
// own: user, mount, pid, network, ipc, uts and cgroup. The child is PID 1 of its PID
// namespace, so that the kernel ends everything below it when it dies, and it
// dies when the thread that started it does (PR_SET_PDEATHSIG), unless Lasting
// is set.
type Spawn struct {
	Args  []string   // argv, Args[0] included
	Files []*os.File // descriptors 3, 4, ... of the child
	// HostUID and HostGID are what the child is on the host. As an ordinary
	// user they must be the caller's own. Never 0.
	HostUID, HostGID int
	// Exe is what the child executes; nil for this program. It is the child's
	// last descriptor, after Files.
	Exe *os.File
	// Lasting lets the child live on when this process has ended.
	Lasting bool
	// Caps are capabilities over the child's own namespaces, beside
	// CAP_SYS_ADMIN.
	Caps []uintptr
}

// Child is a process that was spawned, or adopted; see [Adopt].
type Child struct {
	pid  int
	kill func()
	done chan struct{}

	cmd  *exec.Cmd // nil for one that was adopted
	held *os.File  // the one that was adopted
}

// Start starts the child with an empty environment and /dev/null as its
// standard streams. Unless the child is to last, it holds one operating-system
// thread until the child ends, because the parent-death signal is tied to the
// thread.
func (s Spawn) Start() (*Child, error) {
	if s.HostUID == 0 || s.HostGID == 0 {
		return nil, fmt.Errorf("cannot start box process: host uid 0 is never used behind a box")
	}
	if err := KeepFiles(); err != nil {
		return nil, err
	}
	cmd := s.command(boxNamespaces)
	c := &Child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		if !s.Lasting {
			runtime.LockOSThread() // never unlocked: the thread lives as long as the child
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start box process in new namespaces: %w", err)
	}
	c.pid, c.kill = cmd.Process.Pid, func() { _ = cmd.Process.Kill() }
	return c, nil
}

// command describes the child in the given namespaces, the user's among them.
func (s Spawn) command(namespaces uintptr) *exec.Cmd {
	privileged := IsRoot()
	path, files := SelfExe, s.Files
	if s.Exe != nil {
		files = append(slices.Clone(files), s.Exe)
		path = FDPath(uintptr(3 + len(s.Files)))
	}
	cmd := &exec.Cmd{
		Path:       path,
		Args:       s.Args,
		Env:        []string{},
		Dir:        "/",
		ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:                 namespaces,
			UidMappings:                []syscall.SysProcIDMap{{ContainerID: BoxUser, HostID: s.HostUID, Size: 1}},
			GidMappings:                []syscall.SysProcIDMap{{ContainerID: BoxUser, HostID: s.HostGID, Size: 1}},
			GidMappingsEnableSetgroups: privileged,
			// Root's supplementary groups go; an ordinary user cannot drop
			// its own without help from a privileged program.
			Credential: &syscall.Credential{Uid: BoxUser, Gid: BoxUser, NoSetGroups: !privileged},
			// Needed for the mounts of the first moments; see DropAll.
			AmbientCaps: append([]uintptr{unix.CAP_SYS_ADMIN}, s.Caps...),
			Setsid:      true,
		},
	}
	if !s.Lasting {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	return cmd
}

// Pid is the child's process id in the caller's PID namespace.
func (c *Child) Pid() int { return c.pid }

// Done is closed when the child has ended and, if it was spawned here, was
// reaped; the kernel has then ended and reaped every other process of its PID
// namespace.
func (c *Child) Done() <-chan struct{} { return c.done }

// Kill sends SIGKILL. It is safe after the child's end.
func (c *Child) Kill() { c.kill() }

// Release gives up a child that was adopted: Done is never closed then. One that
// was spawned is waited for all the same.
func (c *Child) Release() {
	if c.held != nil {
		c.held.Close()
	}
}

// End says how the child ended, in words. It is valid after Done, and empty for a
// child that was adopted: nobody but its parent is told.
func (c *Child) End() string {
	if c.cmd == nil || c.cmd.ProcessState == nil {
		return ""
	}
	return c.cmd.ProcessState.String()
}

// Usage returns the resources of the child and of all it waited for. It is
// valid after Done, and nil for a child that was adopted.
func (c *Child) Usage() *syscall.Rusage {
	if c.cmd == nil || c.cmd.ProcessState == nil {
		return nil
	}
	ru, _ := c.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return ru
}

// KeepFiles marks every descriptor above 2 of this process so that no child
// inherits it by accident: those of the caller's caller, too, which may have
// left open what a box must never see (CVE-2024-21626). What a child is meant
// to get, os/exec hands over by itself. See close_range(2).
func KeepFiles() error {
	if err := unix.CloseRange(3, ^uint(0)>>1&0xffffffff, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return box.Errorf(box.Unusable, "create box", "cannot keep descriptors from children: %w", err).
			WithHint("use Linux 5.11 or later (close_range); in a container, a system-call filter that allows it")
	}
	return nil
}
