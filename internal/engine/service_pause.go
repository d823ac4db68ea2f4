package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
)

// pauseTimeout bounds one step between running and paused; nobody's leaving cuts
// it short.
const pauseTimeout = 30 * time.Second

// Pause implements box.Service. The row says that the box is paused before it is:
// whatever happens in between, the next start makes it so.
func (s *Service) Pause(ctx context.Context, c box.Caller, id box.ID) (box.Info, error) {
	return s.step(ctx, c, id, func(l *live) error { _, err := s.pause(ctx, l, false); return err })
}

// Resume implements box.Service.
func (s *Service) Resume(ctx context.Context, c box.Caller, id box.ID) (box.Info, error) {
	return s.step(ctx, c, id, func(l *live) error { return s.resume(ctx, l) })
}

func (s *Service) step(ctx context.Context, c box.Caller, id box.ID, do func(*live) error) (box.Info, error) {
	if err := c.May(box.ScopeWrite); err != nil {
		return box.Info{}, err
	}
	l, err := s.find(ctx, c.Tenant, id)
	if err != nil {
		return box.Info{}, err
	}
	if err := do(l); err != nil {
		return box.Info{}, err
	}
	return s.Inspect(ctx, box.Caller{Tenant: c.Tenant, Scopes: []box.Scope{box.ScopeRead}}, id)
}

// pauser returns what pauses a box, or why nothing does.
func pauser(b box.Lasting) (box.Pauser, error) {
	p, ok := b.(box.Pauser)
	if !ok {
		return nil, box.Errorf(box.Unsupported, "pause box", "cannot pause box %s: its tier cannot", b.ID())
	}
	return p, p.Pausable()
}

// take waits for the box's turn to change its phase.
func (s *Service) take(ctx context.Context, l *live) (release func(), err error) {
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		if !l.ending.Load() || s.ctx.Err() != nil {
			return nil, leaving(l.id)
		}
		return nil, box.Errorf(box.NotFound, "find box", "cannot find box %s: it is being destroyed", l.id)
	}
}

// stand marks a box as one that stands, or is about to: calls wait from now on
// for its turn, and resume it. With idle it does so only if none is under way.
func (l *live) stand(idle bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if idle && l.calls > 0 {
		return false
	}
	l.stands = true
	return true
}

// pause makes a box stand still; with idle only if no call is under way.
func (s *Service) pause(ctx context.Context, l *live, idle bool) (done bool, err error) {
	release, err := s.take(ctx, l)
	if err != nil {
		return false, err
	}
	defer release()
	if !l.pausedSince().IsZero() {
		return true, nil
	}
	p, err := pauser(l.box)
	if err != nil || !l.stand(idle) {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseTimeout)
	defer cancel()
	since := now()
	if _, err = s.become(ctx, l, box.PhasePaused, since, 0); err == nil {
		fault.Here("engine.pause-written")
		s.hold(ctx, l)
		if err = p.Pause(ctx); err != nil {
			s.goOn(ctx, l, 0)
			_, rerr := s.become(ctx, l, box.PhaseRunning, time.Time{}, 0)
			err = errors.Join(err, rerr)
		}
	}
	fault.Here("engine.pause-done")
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.stands = false
		return false, err
	}
	l.since = steady(since)
	s.cfg.Log.InfoContext(ctx, "box paused", "box", l.id, "tenant", l.tenant, "idle", idle)
	return true, nil
}

// resume lets a box go on, if it stands: its end moves by the time that it stood.
func (s *Service) resume(ctx context.Context, l *live) error {
	l.mu.Lock()
	stands := l.stands
	l.mu.Unlock()
	if !stands {
		return nil
	}
	release, err := s.take(ctx, l)
	if err != nil {
		return err
	}
	defer release()
	since := l.pausedSince()
	if since.IsZero() {
		return nil
	}
	p, err := pauser(l.box)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseTimeout)
	defer cancel()
	stood := max(time.Since(since), 0).Truncate(time.Millisecond)
	later := s.moves(l, stood)
	_, err = s.become(ctx, l, box.PhaseRunning, time.Time{}, later)
	if err != nil {
		return err
	}
	fault.Here("engine.resume-written")
	if err := p.Resume(ctx); err != nil {
		_, rerr := s.become(ctx, l, box.PhasePaused, since, -later)
		return errors.Join(err, rerr)
	}
	fault.Here("engine.resume-done")
	s.goOn(ctx, l, stood)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.stands, l.used = time.Time{}, false, time.Now()
	l.later(later)
	s.cfg.Log.InfoContext(ctx, "box resumed", "box", l.id, "tenant", l.tenant, "after", stood)
	return nil
}

// hold tells a box's agent that the box is about to stand still, so that the time
// of its programs does. One that cannot be told is no reason not to pause. The turn
// is held.
func (s *Service) hold(ctx context.Context, l *live) {
	r, ok := l.guest.(box.Renewer)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := r.Hold(ctx); err != nil {
		s.cfg.Log.Warn("the time of programs goes on while their box stands: its agent could not be told", "box", l.id, "error", err)
	}
}

// goOn tells it that the box goes on. An agent that was told of the standstill and
// not of its end finds out by itself, a minute later.
func (s *Service) goOn(ctx context.Context, l *live, stood time.Duration) {
	r, ok := l.guest.(box.Renewer)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := r.Renew(ctx, box.Renewal{Slept: stood}); err != nil {
		s.cfg.Log.Warn("an agent could not be told that its box goes on", "box", l.id, "error", err)
	}
}

// tooLong says that a box has been paused for longer than the service allows, or
// nothing: at once, or so often that its end does not move any more and has come.
func (s *Service) tooLong(l *live) string {
	most, since := s.cfg.MaxPaused, l.pausedSince()
	if most <= 0 || since.IsZero() {
		return ""
	}
	stood := time.Since(since)
	if stood >= most {
		return fmt.Sprintf("it was paused for %v, which is the most that is allowed (--max-paused)", most)
	}
	later := s.moves(l, stood)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ends.IsZero() && later < stood && !time.Now().Before(l.ends.Add(later)) {
		return fmt.Sprintf("its end has come, which its pauses have moved by %v, the most that is allowed (--max-paused)", most)
	}
	return ""
}

// moves is how far a pause that has lasted for so long moves a box's end: all pauses
// together by no more than one may last, since the end was set.
func (s *Service) moves(l *live, stood time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.movesBy(l.moved, stood)
}

func (s *Service) movesBy(moved, stood time.Duration) time.Duration {
	if s.cfg.MaxPaused <= 0 {
		return stood
	}
	return max(min(stood, s.cfg.MaxPaused-moved), 0)
}

// later moves the box's end. The lock is held, or the box nobody's yet.
func (l *live) later(d time.Duration) {
	l.moved += d
	if !l.ends.IsZero() {
		l.ends = l.ends.Add(d)
	}
}

func (l *live) pausedSince() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since
}

// become writes the row of a box that changes its phase, and moves its end.
func (s *Service) become(ctx context.Context, l *live, p box.Phase, since time.Time, later time.Duration) (box.Record, error) {
	return s.cfg.Store.Change(ctx, l.id, func(r *box.Record) (err error) {
		if r.Phase == box.PhaseDestroyed {
			return gone(l.id, *r)
		}
		var was kept
		if err := json.Unmarshal(r.Spec, &was); err != nil {
			return err
		}
		k := l.row()
		k.Paused, k.Moved = since, was.Moved+later
		if !r.Ends.IsZero() {
			r.Ends = r.Ends.Add(later)
		}
		r.Phase = p
		r.Spec, err = json.Marshal(k)
		return err
	})
}

// rest pauses a box that nobody uses. What goes wrong is no reason to end it: it
// is tried again when it has been idle for as long once more.
func (s *Service) rest(l *live) {
	done, err := s.pause(s.ctx, l, true)
	if err != nil && s.ctx.Err() == nil && !l.ending.Load() {
		s.cfg.Log.Error("cannot pause a box that nobody uses", "box", l.id, "error", err)
	}
	if !done {
		l.touch()
	}
}

// settle brings a box that was taken up to the phase of its row, which was
// written before the step to it. One that can no longer be paused runs on.
func (s *Service) settle(ctx context.Context, l *live, phase box.Phase) error {
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if phase != box.PhasePaused {
		p, ok := l.box.(box.Pauser)
		if !ok {
			return nil
		}
		return p.Resume(ctx)
	}
	p, err := pauser(l.box)
	if err == nil {
		err = p.Pause(ctx)
	}
	if err == nil {
		l.since, l.stands = steady(l.kept.Paused), true
		return nil
	}
	s.cfg.Log.Error("a box that was paused runs", "box", l.id, "error", err)
	stood := max(now().Sub(l.kept.Paused), 0)
	s.goOn(ctx, l, stood)
	later := s.moves(l, stood)
	l.later(later)
	_, err = s.become(ctx, l, box.PhaseRunning, time.Time{}, later)
	return err
}
