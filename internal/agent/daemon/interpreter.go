package daemon

import (
	"errors"
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/internal/agent/contexts"
)

// interpreter starts a program for a code context: as all others, but its
// streams are the context's, and it is told of as a context and not in the list
// of processes.
func (a *agent) interpreter(c contexts.Program) (contexts.Running, error) {
	cred, err := a.args.credential(c.User)
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	e := ends{[3]*os.File{c.Stdin, c.Stdout, c.Stderr}}
	for i, f := range e.files {
		if f == nil {
			e.files[i] = null
		}
	}
	if err := e.give(cred); err != nil {
		return nil, err
	}
	p := &process{argv: c.Argv, dir: c.Dir, exited: make(chan struct{})}
	a.starter.do(func() { err = a.table.run(p, c.Env, cred, e.files, c.Extra, false) })
	if err != nil {
		return nil, err
	}
	return running{a.table, p}, nil
}

// running is an interpreter that was started.
type running struct {
	table *table
	p     *process
}

func (r running) PID() int { return r.p.pid }

// Signal signals it, or its group, which may outlive it: then the number is the
// group's, as long as no process of ours has it.
func (r running) Signal(s syscall.Signal, group bool) error {
	err := r.table.signal(r.p, s, group)
	if errors.Is(err, syscall.ESRCH) && group {
		r.table.mu.Lock()
		defer r.table.mu.Unlock()
		if r.table.live[r.p.pid] == nil {
			err = syscall.Kill(-r.p.pid, s)
		}
	}
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func (r running) Wait() (syscall.WaitStatus, error) {
	<-r.p.exited
	return r.p.status, nil
}
