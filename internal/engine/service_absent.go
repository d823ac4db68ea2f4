package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// absent is a box that a start could not take up, though nothing says that it is
// gone: the host was short of something, or the box's first process lives and was
// too slow to answer. A shortage of the host's is no reason to destroy what a
// tenant has. So the row stays, calls are told to come again, the box keeps its
// share, and it is looked for until it is taken up, is known to be lost, or its
// time is over.
type absent struct {
	row  box.Record
	kept kept
	pass *tenant.Pass
	ends time.Time // zero = never
	over chan struct{}

	turn sync.Mutex // held by whoever looks for it or destroys it
	done bool       // it is absent no more
}

// Delays between two looks for an absent box. They double.
const (
	seekFirst = time.Second
	seekMost  = 30 * time.Second
	seekTime  = 30 * time.Second // a look's own
)

const absentDetail = "it cannot be reached: it does not answer, or this host is short of what that takes; it is looked for again"

// unreached is what a call on an absent box is told.
func (a *absent) unreached() *box.Error {
	e := box.Errorf(box.Unavailable, "find box", "cannot use box %s yet: %s", a.row.ID, absentDetail)
	e.Retry = seekFirst
	return e
}

// miss keeps a row whose box is to be looked for again.
func (s *Service) miss(r box.Record, why error) {
	var k kept
	if err := json.Unmarshal(r.Spec, &k); err != nil {
		k = kept{Tier: r.Tier} // its tier could read its part
	}
	a := &absent{row: r, kept: k, ends: steady(r.Ends), over: make(chan struct{})}
	a.pass = s.cfg.Gate.Keep(r.Tenant, tenant.Amounts{Boxes: 1, MilliCPU: k.Limits.MilliCPU, Memory: k.Limits.Memory})
	s.mu.Lock()
	s.absent[r.ID] = a
	s.mu.Unlock()
	s.cfg.Log.Error("a box cannot be reached, and is looked for again", "box", r.ID, "tenant", r.Tenant, "error", why)
	s.work.Go(func() { s.seek(a) })
}

func (s *Service) missing(id box.ID) *absent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent[id]
}

func (s *Service) allMissing() []*absent {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*absent, 0, len(s.absent))
	for _, a := range s.absent {
		out = append(out, a)
	}
	return out
}

// seek looks for a box until it is absent no more.
func (s *Service) seek(a *absent) {
	for wait := seekFirst; ; wait = min(2*wait, seekMost) {
		pause := wait
		timeout := !a.ends.IsZero() && time.Until(a.ends) < wait && a.row.Phase != box.PhasePaused
		if timeout {
			pause = max(time.Until(a.ends), 0)
		}
		timer := time.NewTimer(pause)
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return
		case <-a.over:
			timer.Stop()
			return
		case <-timer.C:
		}
		var err error
		if timeout {
			err = s.endMissing(s.ctx, a, box.ReasonTTL)
			a.ends = time.Now().Add(wait) // if that failed
		} else {
			err = s.look(a)
		}
		if err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Error("a box cannot be reached still", "box", a.row.ID, "tenant", a.row.Tenant, "next", min(2*wait, seekMost), "error", err)
		}
	}
}

// look tries once to take an absent box up.
func (s *Service) look(a *absent) error {
	a.turn.Lock()
	defer a.turn.Unlock()
	if a.done {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, seekTime)
	defer cancel()
	l, err := s.recoverOne(ctx, a.row)
	switch {
	case err == nil:
		s.admit(l)
		if s.ctx.Err() != nil { // Close did not see it
			l.giveUp()
		}
	case box.KindOf(err) == box.Unavailable:
		return err
	default:
		if err := s.lose(s.ctx, a.row, err); err != nil {
			return err
		}
	}
	s.found(a)
	return nil
}

// found ends the search. The box's share is the live box's, if there is one.
func (s *Service) found(a *absent) {
	a.done = true
	close(a.over)
	s.mu.Lock()
	delete(s.absent, a.row.ID)
	s.mu.Unlock()
	a.pass.Release()
}

// endMissing destroys an absent box by what its tier knows of it without it. As at the end
// of any box, each step has a time of its own, which begins when it does: whoever looks
// for the box may keep the turn for as long.
func (s *Service) endMissing(ctx context.Context, a *absent, reason box.Reason) error {
	ctx = context.WithoutCancel(ctx)
	a.turn.Lock()
	defer a.turn.Unlock()
	if a.done {
		if l := s.lookup(a.row.ID); l != nil { // it was taken up meanwhile
			return s.end(ctx, l, reason, "")
		}
		return nil
	}
	var errs []error
	for _, t := range s.cfg.Engine.Tiers {
		if sw, ok := t.(LastingSweeper); ok && t.Name() == a.row.Tier {
			step(ctx, func(ctx context.Context) {
				_, err := sw.SweepLasting(ctx, func(id box.ID) bool { return id != a.row.ID })
				errs = append(errs, err)
			})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return box.Errorf(box.Unavailable, "destroy box", "%w", fmt.Errorf("cannot destroy box %s: %w", a.row.ID, err))
	}
	var err error
	step(ctx, func(ctx context.Context) { err = s.bury(ctx, a.row.ID, a.kept, reason, "", nil) })
	if err != nil {
		return err
	}
	s.found(a)
	s.cfg.Log.InfoContext(ctx, "box destroyed that could not be reached", "box", a.row.ID, "tenant", a.row.Tenant, "reason", reason)
	return nil
}
