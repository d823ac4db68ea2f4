package engine

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Guest implements box.Service.
func (s *Service) Guest(ctx context.Context, c box.Caller, id box.ID, scope box.Scope) (box.Guest, error) {
	if err := c.May(scope); err != nil {
		return nil, err
	}
	l, err := s.find(ctx, c.Tenant, id)
	if err != nil {
		return nil, err
	}
	return &used{s, l}, nil
}

// used is a box's agent in a caller's hands: each call counts as use, ends when
// the box is destroyed, and gets what holds for all programs of the box.
type used struct {
	s *Service
	l *live
}

// enter begins a call. What it returns is to be called at the call's end, with
// its error, and gives the error for the caller. A box that is paused goes on
// first.
func (u *used) enter(ctx context.Context) (context.Context, func(error) error, error) {
	l := u.l
	l.mu.Lock()
	l.calls++
	l.mu.Unlock()
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.ctx, cancel)
	var once sync.Once
	leave := func(err error) error {
		once.Do(func() {
			stop()
			cancel()
			l.mu.Lock()
			l.calls--
			l.used = time.Now()
			l.mu.Unlock()
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case l.ending.Load():
			return u.ended()
		}
		return err
	}
	if err := u.s.resume(inner, l); err != nil {
		return nil, nil, leave(err)
	}
	return inner, leave, nil
}

// ended says why a call was cut short.
func (u *used) ended() error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if r, err := u.s.cfg.Store.Box(ctx, u.l.tenant, u.l.id); err == nil && r.Phase == box.PhaseDestroyed {
		return gone(u.l.id, r)
	}
	if u.s.ctx.Err() != nil {
		return leaving(u.l.id)
	}
	return box.Errorf(box.NotFound, "find box", "cannot find box %s: it is being destroyed", u.l.id)
}

// get is a call with an answer.
func get[T any](ctx context.Context, u *used, call func(context.Context, box.Guest) (T, error)) (T, error) {
	ctx, leave, err := u.enter(ctx)
	if err != nil {
		var none T
		return none, err
	}
	v, err := call(ctx, u.l.guest)
	return v, leave(err)
}

// do is a call without one.
func do(ctx context.Context, u *used, call func(context.Context, box.Guest) error) error {
	ctx, leave, err := u.enter(ctx)
	if err != nil {
		return err
	}
	return leave(call(ctx, u.l.guest))
}

// Start implements box.Processes. The environment of the request is added to
// that of the box.
func (u *used) Start(ctx context.Context, p box.ProcessSpec) (box.Process, error) {
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return box.Process{}, box.Errorf(box.Invalid, "start process", "cannot start a process: no command")
	}
	for _, v := range p.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return box.Process{}, box.Errorf(box.Invalid, "start process", "cannot set environment %q: allowed is NAME=VALUE", v)
		}
	}
	if p.User == "" {
		p.User = u.l.kept.User
	}
	if p.Dir == "" {
		p.Dir = u.l.kept.Workdir
	}
	p.Env = u.environment(p.User, p.Env)
	// A start that its caller gives up in the middle would leave a program that
	// nobody knows the number of.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), launchTimeout)
	defer cancel()
	kills, counted := u.l.counted(whole)
	made, err := get(whole, u, func(ctx context.Context, g box.Guest) (box.Process, error) { return g.Start(ctx, p) })
	if err == nil && ctx.Err() != nil && !p.Detached {
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		_ = u.Signal(kill, box.ProcessRef{PID: made.PID}, int(syscall.SIGKILL), true) // it may have ended, or its box
		err = ctx.Err()
	}
	if err != nil {
		return box.Process{}, err
	}
	if counted {
		u.l.kills.begun(made, kills)
	}
	return made, nil
}

// launchTimeout is how long a box may take to start a program, whoever waits.
const launchTimeout = 30 * time.Second

func (u *used) environment(user box.User, more []string) []string {
	var all []string
	if u.l.kept.Path != "" {
		all = append(all, "PATH="+u.l.kept.Path)
	}
	all = append(append(all, u.l.kept.Env...), more...)
	return Environment(user, all...)
}

// Follow implements box.Processes. A program that the host's kernel ended for
// want of memory does not know that, nor does the agent.
func (u *used) Follow(ctx context.Context, p box.ProcessRef, from box.Positions, fn func(box.ProcessEvent) error) error {
	ctx, leave, err := u.enter(ctx)
	if err != nil {
		return err
	}
	return leave(u.l.guest.Follow(ctx, p, from, func(ev box.ProcessEvent) error {
		if ev.Kind == box.EventEnd && ev.End != nil {
			end := *ev.End
			u.l.judge(ctx, p, &end)
			ev.End = &end
		}
		return fn(ev)
	}))
}

// Input implements box.Processes.
func (u *used) Input(ctx context.Context, p box.ProcessRef, in box.Input) (int64, error) {
	return get(ctx, u, func(ctx context.Context, g box.Guest) (int64, error) { return g.Input(ctx, p, in) })
}

// Signal implements box.Processes.
func (u *used) Signal(ctx context.Context, p box.ProcessRef, signal int, group bool) error {
	return do(ctx, u, func(ctx context.Context, g box.Guest) error { return g.Signal(ctx, p, signal, group) })
}

// Resize implements box.Processes.
func (u *used) Resize(ctx context.Context, p box.ProcessRef, size box.WindowSize) error {
	return do(ctx, u, func(ctx context.Context, g box.Guest) error { return g.Resize(ctx, p, size) })
}

// Processes implements box.Processes.
func (u *used) Processes(ctx context.Context) ([]box.Process, error) {
	return get(ctx, u, func(ctx context.Context, g box.Guest) ([]box.Process, error) { return g.Processes(ctx) })
}

// Forget implements box.Processes.
func (u *used) Forget(ctx context.Context, p box.ProcessRef) error {
	return do(ctx, u, func(ctx context.Context, g box.Guest) error { return g.Forget(ctx, p) })
}

// Tidy implements box.Tidier.
func (u *used) Tidy(ctx context.Context, p box.ProcessRef) error {
	u.l.mu.Lock()
	if u.l.stands {
		u.l.mu.Unlock()
		return nil
	}
	u.l.calls++ // nobody's use, and the box is not paused for idleness meanwhile
	u.l.mu.Unlock()
	defer func() {
		u.l.mu.Lock()
		u.l.calls--
		u.l.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, tidyTimeout) // a pause may stop it halfway
	defer cancel()
	return u.l.guest.Forget(ctx, p)
}

// tidyTimeout is how long somebody who tidies up waits for a box.
const tidyTimeout = time.Second

// Metrics implements box.Guest.
func (u *used) Metrics(ctx context.Context) (box.Metrics, error) {
	return get(ctx, u, func(ctx context.Context, g box.Guest) (box.Metrics, error) {
		m, err := g.Metrics(ctx)
		if err == nil && m.MemoryTotal == 0 { // a box on the host's kernel does not see its own
			m.MemoryTotal = u.l.kept.Limits.Memory
		}
		return m, err
	})
}

// Dial implements box.Guest. A connection is use for as long as it is open.
func (u *used) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	inner, leave, err := u.enter(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = leave(nil) })
	conn, err := u.l.guest.Dial(inner, port)
	stop()
	if err != nil {
		return nil, leave(err)
	}
	return &usedConn{conn, leave}, nil
}

type usedConn struct {
	net.Conn
	leave func(error) error
}

func (c *usedConn) Close() error {
	err := c.Conn.Close()
	_ = c.leave(nil)
	return err
}

// usedReader is use until it is closed.
type usedReader struct {
	io.ReadCloser
	leave func(error) error
}

func (r *usedReader) Close() error {
	err := r.ReadCloser.Close()
	_ = r.leave(nil)
	return err
}
