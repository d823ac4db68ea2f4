package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// kept is what a row keeps of a box beyond the columns.
type kept struct {
	Tier    box.TierName
	Limits  box.Limits
	Workdir string
	User    box.User
	Env     []string // of every program started in it; the file is the daemon's alone
	Path    string   // the image's PATH
	Idle    time.Duration
	OnIdle  box.IdleAction `json:",omitempty"`
	Paused  time.Time      `json:",omitzero"` // since when, in the row; see live.since
	// Moved is how far pauses have moved the box's end since that was set; see moves.
	Moved  time.Duration `json:",omitempty"`
	Policy box.Policy
	// Sandbox is what was asked for, as JSON, for boxes that are made from this one;
	// nil if an earlier version made it, which did not keep it.
	Sandbox json.RawMessage `json:",omitempty"`
	// Ending is why the box is being destroyed, from before anything of it goes: a
	// later daemon finishes that, and tells the same reason.
	Ending       box.Reason    `json:",omitempty"`
	EndingDetail string        `json:",omitempty"`
	Volumes      []box.Volume  `json:",omitempty"`
	Start        box.StartKind `json:",omitempty"`
	StartReason  string        `json:",omitempty"`
	// Reach are the compiled rules of the box's network, and Generation the number of
	// their last change; nil without a network. Traffic is of a box that is no more.
	Reach      json.RawMessage `json:",omitempty"`
	Generation uint64          `json:",omitempty"`
	Traffic    *box.Traffic    `json:",omitempty"`
}

// live is a box that runs.
type live struct {
	id      box.ID
	tenant  string
	kept    kept
	box     box.Lasting
	guest   Agent
	pass    *tenant.Pass
	ctx     context.Context // ends when the box is being destroyed
	cancel  context.CancelFunc
	ending  atomic.Bool
	reaping atomic.Bool

	mu    sync.Mutex
	ends  time.Time // zero = never
	moved time.Duration
	calls int       // that are under way
	used  time.Time // when the last one ended
	kills kills

	network network // what kept says of it; see live.row

	stands bool          // it is paused, or about to be, or about to go on
	since  time.Time     // when it was paused; zero while it runs
	turn   chan struct{} // held by whoever changes that

	destroying sync.Mutex // held by whoever destroys it
	cleared    bool       // nothing of it is left on the host
	destroyed  bool       // and that is written down
	reason     box.Reason // why it was first meant to be destroyed; under destroying
	detail     string
	account    []byte
}

func (s *Service) newLive(r box.Record, k kept, b box.Lasting, g Agent, p *tenant.Pass) *live {
	l := &live{id: r.ID, tenant: r.Tenant, kept: k, box: b, pass: p, ends: steady(r.Ends), moved: k.Moved, used: time.Now(), turn: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(s.ctx)
	l.guest = g
	l.network.take(k)
	return l
}

// admit makes a box known, and watches for its end.
func (s *Service) admit(l *live) {
	s.mu.Lock()
	s.boxes[l.id] = l
	s.mu.Unlock()
	s.work.Go(func() {
		select {
		case <-l.ctx.Done():
		case <-l.box.Ended():
			ctx, cancel := context.WithTimeout(s.ctx, destroyTimeout)
			defer cancel()
			reason, detail := l.cause(ctx)
			if err := s.end(ctx, l, reason, detail); err != nil {
				s.cfg.Log.Error("cannot clear a box that ended", "box", l.id, "error", err)
			}
		}
	})
}

// cause says why a box ended by itself.
func (l *live) cause(ctx context.Context) (box.Reason, string) {
	acc, err := l.box.Account(ctx)
	if err != nil {
		return box.ReasonLost, "its first process ended, and its account cannot be read"
	}
	for _, hit := range acc.Limits {
		if hit.Ended || hit.Limit == "memory" {
			return box.ReasonLimit, fmt.Sprintf("%s (%s)", hit.Limit, hit.Source)
		}
	}
	if acc.Ending != "" {
		return box.ReasonLost, "its first process ended: " + acc.Ending
	}
	return box.ReasonLost, "its first process ended"
}

// giveUp leaves the box to a later service.
func (l *live) giveUp() {
	l.ending.Store(true)
	l.cancel()
	l.guest.Close()
	l.box.Detach() // its link stays with the keeper, until that ends
}

// setEnds gives the box a new end, which pauses have not moved.
func (l *live) setEnds(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends, l.moved = steady(t), 0
}

// steady is a moment of the wall clock as this process's own clock will see it:
// somebody who sets the wall clock lets no box end early or live on (time.Time,
// "Monotonic Clocks").
func steady(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	n := time.Now()
	return n.Add(t.Sub(n))
}

// Destroy implements box.Service.
func (s *Service) Destroy(ctx context.Context, c box.Caller, id box.ID) error {
	if err := c.May(box.ScopeWrite); err != nil {
		return err
	}
	l := s.lookup(id) // before its row is read: who destroys it forgets it after the row says so
	r, err := s.cfg.Store.Box(ctx, c.Tenant, id)
	switch {
	case err != nil:
		return err
	case r.Phase == box.PhaseDestroyed:
		return nil
	case l == nil && s.ctx.Err() != nil:
		return leaving(id)
	case l == nil && s.missing(id) != nil:
		return s.endMissing(ctx, s.missing(id), box.ReasonAsked)
	case l == nil:
		return box.Errorf(box.Unavailable, "destroy box", "cannot destroy box %s yet: it is being made", id)
	}
	return s.end(ctx, l, box.ReasonAsked, "")
}

// end destroys a box, once. Whoever comes second waits, and finds it gone. Each step has
// a time of its own: one that took all of it leaves the next one as much, or a box that
// is gone could not be told as that.
func (s *Service) end(ctx context.Context, l *live, reason box.Reason, detail string) error {
	ctx = context.WithoutCancel(ctx)
	l.ending.Store(true)
	l.destroying.Lock()
	defer l.destroying.Unlock()
	if l.destroyed {
		return nil
	}
	if l.reason == "" {
		l.reason, l.detail = reason, detail
		fault.Here("engine.destroy-begun")
		step(ctx, func(ctx context.Context) { s.intend(ctx, l) })
	}
	fault.Here("engine.destroy-intended")
	if err := s.clear(ctx, l); err != nil { // it stays known, and the reaper tries again
		return box.Errorf(box.Unavailable, "destroy box", "%w", err).WithHint("the box is no longer used, and its end is tried again by itself; ask again, too")
	}
	fault.Here("engine.destroy-cleared")
	var err error
	step(ctx, func(ctx context.Context) { err = s.bury(ctx, l.id, l.row(), l.reason, l.detail, l.account) })
	if err != nil {
		return err // a row that says that it runs would never be true again
	}
	fault.Here("engine.destroy-told")
	l.destroyed = true
	s.mu.Lock()
	delete(s.boxes, l.id)
	s.mu.Unlock()
	s.cfg.Log.InfoContext(ctx, "box destroyed", "box", l.id, "tenant", l.tenant, "reason", l.reason, "detail", l.detail)
	return nil
}

// step does one thing of a box's end.
func step(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	do(ctx)
}

// clear leaves nothing of a box on the host, and gives its share back.
func (s *Service) clear(ctx context.Context, l *live) error {
	if l.cleared {
		return nil
	}
	actx, cancel := context.WithTimeout(ctx, askTimeout)
	acc, err := l.box.Account(actx)
	cancel()
	if err == nil {
		l.account, err = json.Marshal(acc)
	}
	if err != nil {
		l.account = nil // it is no reason to leave the box
	}
	l.cancel()
	l.guest.Close()
	step(ctx, func(ctx context.Context) { s.linkDown(ctx, l) })
	if err := destroy(ctx, l.box); err != nil {
		return err
	}
	step(ctx, func(ctx context.Context) { s.letGo(ctx, l.tenant, l.id, l.kept.Volumes) })
	l.cleared = true
	l.pass.Release()
	return nil
}

// reap ends boxes whose time is over or that nobody uses, and those whose
// destruction failed before.
func (s *Service) reap() {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	lead := time.Duration(0)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		lead = s.followWall(lead)
		s.warmth.forget()
		for _, l := range s.all() {
			if !l.reaping.CompareAndSwap(false, true) {
				continue
			}
			s.work.Go(func() {
				defer l.reaping.Store(false)
				s.relink(l)
				reason, detail := l.over(s.ctx), s.tooLong(l)
				if reason == "" && detail != "" {
					reason = box.ReasonTTL
				}
				if reason == "" {
					return
				}
				if reason == box.ReasonIdle && l.kept.OnIdle == box.IdlePause {
					s.rest(l)
					return
				}
				if err := s.end(s.ctx, l, reason, detail); err != nil && s.ctx.Err() == nil {
					s.cfg.Log.Error("cannot destroy a box", "box", l.id, "reason", reason, "error", err)
				}
			})
		}
	}
}

// silentTime is how long a box that nobody uses may not answer to whether anything
// runs in it: a program can stop its agent.
const silentTime = time.Minute

// over says why a box is to be destroyed now, or nothing.
func (l *live) over(ctx context.Context) box.Reason {
	l.mu.Lock()
	ends, calls, used, stands := l.ends, l.calls, l.used, l.stands
	l.mu.Unlock()
	switch {
	case l.ending.Load():
		return box.ReasonAsked // and it failed
	case stands:
		return ""
	case !ends.IsZero() && !time.Now().Before(ends):
		return box.ReasonTTL
	case l.kept.Idle == 0 || calls > 0 || time.Since(used) < l.kept.Idle:
		return ""
	}
	// A program that runs is use, too.
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := l.guest.Processes(ctx)
	if err != nil {
		if time.Since(used) >= l.kept.Idle+silentTime {
			return box.ReasonIdle // whatever runs in there, nobody can use it
		}
		return "" // it is known another time, or the box has ended
	}
	for _, p := range all {
		if p.End == nil {
			l.touch()
			return ""
		}
		if p.End.Ended.After(used) {
			l.mu.Lock()
			l.used = p.End.Ended
			l.mu.Unlock()
			used = p.End.Ended
		}
	}
	contexts, err := l.guest.Contexts(ctx)
	if err != nil && box.KindOf(err) != box.Unsupported {
		return ""
	}
	for _, c := range contexts {
		if c.State == box.ContextBusy {
			l.touch()
			return ""
		}
	}
	if time.Since(used) < l.kept.Idle {
		return ""
	}
	return box.ReasonIdle
}

func (l *live) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = time.Now()
}
