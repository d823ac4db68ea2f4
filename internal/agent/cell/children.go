package cell

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
)

// children reaps every process of the box, its own programs and orphans alike,
// and keeps the ends of its own until they are asked for.
type children struct {
	mu   sync.Mutex
	own  map[int]*child
	wake chan os.Signal
}

type child struct {
	done   chan struct{}
	status uint32
}

func newChildren() *children {
	c := &children{own: make(map[int]*child), wake: make(chan os.Signal, 1)}
	signal.Notify(c.wake, syscall.SIGCHLD)
	go func() {
		for range c.wake {
			c.reap()
		}
	}()
	return c
}

// start starts a process and registers it before it can be reaped.
func (c *children) start(start func() (*os.Process, error)) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := start()
	if err != nil {
		return 0, err
	}
	c.own[p.Pid] = &child{done: make(chan struct{})}
	pid := p.Pid
	_ = p.Release()
	return pid, nil
}

// reap takes the ends of all processes that have ended.
func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if k, ok := c.own[pid]; ok {
			k.status = uint32(ws)
			close(k.done)
		}
	}
}

func (c *children) find(pid int) (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.own[pid]
	if !ok {
		return nil, fmt.Errorf("cannot find process %d: it was not started here, or its end was already told", pid)
	}
	return k, nil
}

// wait returns how a process ended, once.
func (c *children) wait(pid int) (uint32, error) {
	k, err := c.find(pid)
	if err != nil {
		return 0, err
	}
	<-k.done
	c.mu.Lock()
	delete(c.own, pid)
	c.mu.Unlock()
	return k.status, nil
}

// signal signals a process that has not ended, or its group: the number cannot
// have been given to another one, since only reap frees it.
func (c *children) signal(s wire.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.own[int(s.Pid)]
	if !ok {
		return fmt.Errorf("cannot signal process %d: it was not started here", s.Pid)
	}
	select {
	case <-k.done:
		return nil
	default:
	}
	target := int(s.Pid)
	if s.Group {
		target = -target
	}
	if err := syscall.Kill(target, syscall.Signal(s.Signal)); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot signal process %d: %w", s.Pid, err)
	}
	return nil
}

// endTime bounds end. What does not die by then waits in the kernel for a device.
const endTime = 10 * time.Second

// end ends every program of the box and returns when they are gone and reaped.
// No fork escapes: kill(2) with -1 signals all but this process in one step, and
// a process with SIGKILL pending does not fork any more. PID 1 is the parent of
// last resort, so nothing is left when there is nothing to signal.
func (c *children) end() error {
	for deadline := time.Now().Add(endTime); ; <-time.After(time.Millisecond) {
		err := syscall.Kill(-1, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot end programs: %w", err)
		}
		if time.Now().After(deadline) {
			return errors.New("cannot end programs: some do not die")
		}
		c.reap()
	}
}
