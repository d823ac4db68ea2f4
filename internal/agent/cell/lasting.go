package cell

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Descriptors of the first step of an agent that is started in two: its own at
// 3, which is the order's before, comes as agentStream, its program as agentFile.
const (
	agentStream = 5
	agentFile   = 6
)

// firstFree is above every descriptor that a program is started with.
const firstFree = 10

// startAgent starts the agent of a box that lasts, as one more program of it,
// and ends the cell with it. Streams for it are handed over through descriptor 3.
func (c *cell) startAgent(program *os.File) (pid int, err error) {
	if c.set.HasStore {
		// By descriptor: a program may do as it likes with the folder's mode.
		fd, err := unix.Open(c.set.Writable[0].Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, fmt.Errorf("cannot open the store: %w", err)
		}
		c.store = os.NewFile(uintptr(fd), "store")
	}
	ours, theirs, err := host.PacketPair()
	if err != nil {
		return 0, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot start the agent: %w", err)
	}
	defer null.Close()
	e := wire.Exec{File: ArgvAgent, Argv: c.set.Agent.Argv, Env: c.set.Agent.Env, Dir: "/"}
	files, extra := []*os.File{null, null, null}, []*os.File{theirs}
	if program != nil {
		fd, err := unix.FcntlInt(program.Fd(), unix.F_DUPFD_CLOEXEC, firstFree)
		program.Close()
		if err != nil {
			return 0, fmt.Errorf("cannot start the agent: %w", err)
		}
		program = os.NewFile(uintptr(fd), "agent")
		defer program.Close()
		e.File = host.FDPath(program.Fd())
	}
	var v any
	if len(c.set.Limits) > 0 {
		if program != nil {
			e.File, extra = host.FDPath(agentFile), append(extra, program)
		}
		v, err = c.execLimited(e, files, extra)
	} else {
		v, err = c.start(e, agentPath(e), e.Argv, e.Env, e.Dir, files, extra)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot start the agent: %w", err)
	}
	started, ok := v.(wire.Started)
	if !ok {
		return 0, errors.New("cannot start the agent: nothing was started")
	}
	c.agent = ours
	go func() {
		status, err := c.kids.wait(int(started.Pid))
		why := wire.HowEnded(syscall.WaitStatus(status))
		if err != nil {
			why = err.Error()
		}
		c.server.EndBecause("the agent ended: " + why)
	}()
	return int(started.Pid), nil
}

// agentPath is what to execute for the agent.
func agentPath(e wire.Exec) string {
	if e.File == ArgvAgent {
		return host.SelfExe
	}
	return e.File
}

// stream makes a byte stream to the agent and answers with the front's end.
func (c *cell) stream() (any, error) {
	if c.agent == nil {
		return nil, errors.New("cannot reach the agent: this box has none")
	}
	ours, theirs, err := host.StreamPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := host.SendFile(c.agent, theirs); err != nil {
		ours.Close()
		return nil, err
	}
	return wire.WithFiles{Body: struct{}{}, Files: []*os.File{ours}}, nil
}

// giveLink answers with the host's end of the box's link. The cell keeps it, for
// the fronts to come; nobody else in the box can have it.
func (c *cell) giveLink() (any, error) {
	if c.link.File == nil {
		return nil, errors.New("cannot give the link: this box has none")
	}
	f, err := host.Dup(c.link.File)
	if err != nil {
		return nil, err
	}
	return wire.WithFiles{Body: wire.LinkKind{Kind: c.link.Kind}, Files: []*os.File{f}}, nil
}

// giveStore answers with a descriptor of the store, by which the front can ask
// its file system; the front makes sure that it is the one that it made.
func (c *cell) giveStore() (any, error) {
	if c.store == nil {
		return nil, errors.New("cannot give the store: this box has none of its own")
	}
	f, err := host.Dup(c.store)
	if err != nil {
		return nil, err
	}
	return wire.WithFiles{Body: struct{}{}, Files: []*os.File{f}}, nil
}
