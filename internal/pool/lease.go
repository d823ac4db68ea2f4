package pool

import (
	"context"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Lease is a box that is one caller's. It never comes back: whoever holds it
// ends it, or keeps it as its own and destroys or detaches it itself.
type Lease struct {
	Box box.Lasting

	shelf  *shelf
	slot   *slot
	batch  int
	told   sync.Once  // Worked or Failed
	ending sync.Mutex // held by whoever destroys it
}

// Lease gives the caller a warm box of a shape, or says why it takes the cold
// path. It takes at most Config.Wait and one Config.CheckTimeout: what is not
// as it was made is thrown away, and another is tried while there is time.
func (p *Pool) Lease(ctx context.Context, shape Shape) (*Lease, Miss) {
	start := time.Now()
	p.mu.Lock()
	s := p.shelves[shape]
	if s == nil {
		defer p.mu.Unlock()
		if p.closed {
			return nil, MissClosed
		}
		return nil, MissShape
	}
	defer p.mu.Unlock()
	l, miss := s.lease(ctx, start)
	if l == nil {
		s.misses[miss]++
	}
	return l, miss
}

// lease is called with the lock and returns with it; in between it lets go.
func (s *shelf) lease(ctx context.Context, start time.Time) (*Lease, Miss) {
	p := s.pool
	tried, waited := false, false
	for {
		now := time.Now()
		left := p.cfg.Wait - now.Sub(start)
		switch {
		case p.closed:
			return nil, MissClosed
		case s.size == 0:
			return nil, MissShape
		case ctx.Err() != nil:
			return nil, MissCanceled
		case s.breaker.poisoned(now):
			return nil, MissBroken
		case tried && left <= 0:
			return nil, MissBad
		}
		if b := s.take(now); b != nil {
			l, canceled := s.try(ctx, b)
			if l != nil {
				return l, ""
			}
			tried = !canceled
			continue
		}
		switch {
		case tried:
			return nil, MissBad
		case waited && left <= 0:
			return nil, MissLate
		case left <= 0 || !s.coming(now) || s.waiting >= s.size:
			return nil, MissEmpty
		}
		waited = true
		s.wait(ctx, left)
	}
}

// take wins the oldest box that is ready, or none. The lock is held.
func (s *shelf) take(now time.Time) *slot {
	for _, b := range s.slots {
		if now.Before(b.expires) && b.become(ready, checking) {
			return b
		}
	}
	return nil
}

// coming reports whether a box is on its way, when none is ready: the keeper has
// one in hand, or nothing keeps it from making one for each that is taken. The
// lock is held.
func (s *shelf) coming(now time.Time) bool {
	return s.busy || !s.breaker.free(now).After(now)
}

// wait lets go of the lock until something changes, for at most so long.
func (s *shelf) wait(ctx context.Context, most time.Duration) {
	wake := s.wake
	s.waiting++
	s.pool.mu.Unlock()
	t := time.NewTimer(most)
	select {
	case <-wake:
	case <-ctx.Done():
	case <-t.C:
	}
	t.Stop()
	s.pool.mu.Lock()
	s.waiting--
}

// try looks at a box that was taken, and leases it if it is good. It lets go of
// the lock meanwhile. A caller who went away is no fault of the box's.
func (s *shelf) try(ctx context.Context, b *slot) (l *Lease, canceled bool) {
	p := s.pool
	p.mu.Unlock()
	err := s.examine(ctx, b)
	p.mu.Lock()
	now := time.Now()
	switch {
	case ctx.Err() != nil && !p.closed:
		s.putBack(b, now) // to be looked at by the keeper
		return nil, true
	case err != nil:
		s.refuse(b, err)
		return nil, false
	case p.closed || s.size == 0 || s.breaker.poisoned(now):
		b.next = now
		b.become(checking, ending)
		s.counts.Surplus++
		s.changed()
		return nil, false
	case !b.become(checking, leased):
		return nil, false // it cannot be: the phase is ours
	}
	s.remove(b)
	s.counts.Leased++
	s.breaker.probed(now)
	s.changed()
	return &Lease{Box: b.box, shelf: s, slot: b, batch: s.breaker.batch}, false
}

// Worked says that the box was of use: what had to be bound was bound, and its
// agent answered. Only the first of Worked and Failed counts.
func (l *Lease) Worked() {
	l.told.Do(func() {
		l.shelf.pool.mu.Lock()
		defer l.shelf.pool.mu.Unlock()
		l.shelf.counts.Worked++
		l.shelf.breaker.worked(l.batch)
		l.shelf.changed()
	})
}

// Failed says that the box was of no use, and ends it. It is for what fails
// before a caller's program runs: one who could make it count would have the
// power to empty the pool for all.
func (l *Lease) Failed(ctx context.Context, cause error) error {
	l.told.Do(func() {
		s := l.shelf
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		if cause != nil {
			s.err = cause.Error()
		}
		s.counts.Failed++
		s.bad(time.Now())
		s.changed()
	})
	return l.End(ctx)
}

// End destroys the box. A second call waits for the first and does nothing,
// unless that one failed: then it tries again. It does not end with ctx, but
// after Config.DestroyTimeout.
func (l *Lease) End(ctx context.Context) error {
	l.ending.Lock()
	defer l.ending.Unlock()
	l.slot.become(leased, ending)
	if l.slot.phase() == gone {
		return nil
	}
	if err := destroy(context.WithoutCancel(ctx), l.Box, l.shelf.pool.cfg.DestroyTimeout); err != nil {
		return err
	}
	l.slot.become(ending, gone)
	return nil
}
