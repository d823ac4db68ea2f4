package servertest

import (
	"context"
	"slices"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func (g *Guest) program(ref box.ProcessRef) (*program, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range slices.Backward(g.programs) {
		if p.pid == ref.PID || ref.PID == 0 && p.spec.Tag == ref.Tag {
			return p, nil
		}
	}
	return nil, box.Errorf(box.NotFound, "find process", "cannot find the process: it is not there, or was forgotten")
}

// reach begins a call that concerns a program.
func (g *Guest) reach(ctx context.Context, ref box.ProcessRef) (*program, context.Context, context.CancelFunc, error) {
	ctx, cancel, err := g.in(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := g.program(ref)
	if err != nil {
		cancel()
		return nil, nil, nil, err
	}
	return p, ctx, cancel, nil
}

// Follow implements box.Guest.
func (g *Guest) Follow(ctx context.Context, ref box.ProcessRef, from box.Positions, fn func(box.ProcessEvent) error) error {
	p, ctx, cancel, err := g.reach(ctx, ref)
	if err != nil {
		return err
	}
	defer cancel()
	h := &hold{at: [2]int64{from.Stdout, from.Stderr}}
	p.mu.Lock()
	for i := range h.at {
		if h.at[i] < p.out[i].base {
			h.at[i] = p.out[i].base
		}
	}
	for other := range p.holds {
		if !other.until.IsZero() {
			delete(p.holds, other)
		}
	}
	p.followers++
	h.number = p.followers
	p.holds[h] = struct{}{}
	p.mu.Unlock()
	defer context.AfterFunc(ctx, func() { p.mu.Lock(); p.changed.Broadcast(); p.mu.Unlock() })()
	buf := make([]byte, 32<<10)
	for {
		ev, err := p.next(ctx, h, buf)
		if err == nil {
			err = fn(ev)
		}
		switch {
		case err != nil:
			p.leave(h)
			return err
		case ev.Kind == box.EventEnd:
			p.mu.Lock()
			delete(p.holds, h)
			p.mu.Unlock()
			return nil
		}
		p.taken(h, ev)
	}
}

// leave keeps what h has not had for a while, unless another follower came
// after it: that is the same one, come back.
func (p *program) leave(h *hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.until = time.Now().Add(box.ReplayTime)
	for other := range p.holds {
		if other.until.IsZero() && other.number > h.number {
			delete(p.holds, h)
		}
	}
	p.changed.Broadcast()
}

// next waits for what comes after h.
func (p *program) next(ctx context.Context, h *hold, buf []byte) (box.ProcessEvent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return box.ProcessEvent{}, err
		}
		for i, kind := range []box.EventKind{box.EventStdout, box.EventStderr} {
			t := &p.out[i]
			at := max(h.at[i], t.base)
			if at < t.end() {
				n := copy(buf, t.data[at-t.base:])
				return box.ProcessEvent{Kind: kind, At: at, Data: buf[:n]}, nil
			}
		}
		if p.end != nil {
			return box.ProcessEvent{Kind: box.EventEnd, End: p.end}, nil
		}
		p.changed.Wait()
	}
}

func (p *program) taken(h *hold, ev box.ProcessEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := 0
	if ev.Kind == box.EventStderr {
		i = 1
	}
	h.at[i] = ev.At + int64(len(ev.Data))
	p.changed.Broadcast()
}

// Input implements box.Guest.
func (g *Guest) Input(ctx context.Context, ref box.ProcessRef, in box.Input) (int64, error) {
	p, _, cancel, err := g.reach(ctx, ref)
	if err != nil {
		return 0, err
	}
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.end != nil:
		return p.inAt, box.Errorf(box.Conflict, "write", "cannot write: the process has ended")
	case !p.spec.Stdin:
		return 0, box.Errorf(box.Conflict, "write", "cannot write: the process has no standard input")
	case in.At > p.inAt:
		return p.inAt, box.Errorf(box.Invalid, "write", "cannot write at %d: only %d bytes were written", in.At, p.inAt)
	}
	if skip := p.inAt - in.At; skip < int64(len(in.Data)) {
		p.in = append(p.in, in.Data[skip:]...)
		p.inAt = in.At + int64(len(in.Data))
	}
	p.inEnd = p.inEnd || in.End
	p.changed.Broadcast()
	return p.inAt, nil
}

// Signal implements box.Guest: every signal but 0 ends the program.
func (g *Guest) Signal(ctx context.Context, ref box.ProcessRef, signal int, _ bool) error {
	p, _, cancel, err := g.reach(ctx, ref)
	if err != nil {
		return err
	}
	defer cancel()
	if p.describe().End != nil {
		return box.Errorf(box.Conflict, "signal", "cannot send a signal: the process has ended")
	}
	if signal != 0 {
		p.finish(box.End{Cause: box.Signaled, Signal: signal})
	}
	return nil
}

// Resize implements box.Guest.
func (g *Guest) Resize(ctx context.Context, ref box.ProcessRef, size box.WindowSize) error {
	p, _, cancel, err := g.reach(ctx, ref)
	if err != nil {
		return err
	}
	defer cancel()
	if p.spec.TTY == nil {
		return box.Errorf(box.Conflict, "resize", "cannot resize: the process has no terminal")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = size
	return nil
}

// Processes implements box.Guest.
func (g *Guest) Processes(ctx context.Context) ([]box.Process, error) {
	_, cancel, err := g.in(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []box.Process
	for _, p := range g.programs {
		all = append(all, p.describe())
	}
	return all, nil
}

// Forget implements box.Guest.
func (g *Guest) Forget(ctx context.Context, ref box.ProcessRef) error {
	p, _, cancel, err := g.reach(ctx, ref)
	if err != nil {
		return err
	}
	defer cancel()
	if p.describe().End == nil {
		return box.Errorf(box.Conflict, "forget", "cannot forget the process: it lives")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.programs = slices.DeleteFunc(slices.Clone(g.programs), func(q *program) bool { return q == p })
	return nil
}
