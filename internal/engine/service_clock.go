package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Boxes live by this process's own clock, which neither a wall clock that is set
// nor the sleep of the host moves (CLOCK_MONOTONIC, clock_gettime(2)). Rows hold
// moments of the wall clock, for callers to read and for the next service. When
// the two clocks have come apart, rows are written anew, so that all three agree:
// the time that the host slept ends no box, makes none idle, and moves ends_at, as
// a pause does.

// clocksApart is how far the clocks may come apart before rows are written anew.
// Less is the wall clock being slewed.
const clocksApart = time.Second

// leadFrom returns how far the wall clock has gone ahead of this process's own
// since now.
func leadFrom(base time.Time) func() time.Duration {
	return func() time.Duration {
		n := time.Now()
		return n.Round(0).Sub(base.Round(0)) - n.Sub(base) // Round strips the monotonic reading
	}
}

// followWall looks whether the wall clock has jumped, and rewrites what rows say of
// moments to come. It returns the lead that rows have from then on.
func (s *Service) followWall(had time.Duration) time.Duration {
	lead := s.cfg.lead()
	jumped := lead - had
	if jumped.Abs() < clocksApart {
		return had
	}
	s.cfg.Log.Info("the host slept, or its clock was set: boxes go on from where they were", "by", jumped.Round(time.Millisecond))
	whole := true
	for _, l := range s.all() {
		select {
		case l.turn <- struct{}{}: // else it is being paused or resumed, which moves its end
			err := s.rewrite(s.ctx, l, lead)
			<-l.turn
			if err == nil || s.ctx.Err() != nil {
				continue
			}
			s.cfg.Log.Warn("cannot write down when a box ends now", "box", l.id, "error", err)
		default:
		}
		whole = false
	}
	if !whole {
		return had // the next look tries again
	}
	return lead
}

// rewrite puts the moments that a box lives by into its row, as the wall clock
// shows them now.
func (s *Service) rewrite(ctx context.Context, l *live, lead time.Duration) error {
	wall := func(t time.Time) time.Time {
		return s.began.Round(0).Add(t.Sub(s.began) + lead).UTC().Truncate(time.Millisecond)
	}
	_, err := s.cfg.Store.Change(ctx, l.id, func(r *box.Record) error {
		l.mu.Lock()
		ends, since := l.ends, l.since
		l.mu.Unlock()
		if !r.Ends.IsZero() && !ends.IsZero() {
			r.Ends = wall(ends)
		}
		if since.IsZero() || r.Phase != box.PhasePaused {
			return nil
		}
		var k kept
		err := json.Unmarshal(r.Spec, &k)
		if err == nil {
			k.Paused = wall(since)
			r.Spec, err = json.Marshal(k)
		}
		return err
	})
	if box.KindOf(err) == box.NotFound {
		return nil
	}
	return err
}
