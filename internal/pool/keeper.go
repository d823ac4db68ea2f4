package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// shelf is where the boxes of one shape stand. The pool's lock guards all but
// pool, shape, kick and done.
type shelf struct {
	pool  *Pool
	shape Shape
	kick  chan struct{} // something changed, for the keeper
	done  chan struct{} // the keeper is gone

	size    int
	slots   []*slot // oldest first; leased and gone ones are not among them
	aside   bool    // it stands in line, and would not hear that it is its turn
	busy    bool    // the keeper has one in hand that may become ready
	breaker breaker
	wake    chan struct{} // closed when something changed, for those who wait
	waiting int
	counts  Counts
	misses  map[Miss]int64
	err     string
}

func newShelf(p *Pool, s Shape) *shelf {
	c := p.cfg
	return &shelf{
		pool: p, shape: s, kick: make(chan struct{}, 1), done: make(chan struct{}), wake: make(chan struct{}), misses: map[Miss]int64{},
		breaker: breaker{trip: c.Trip, first: c.Backoff, most: c.MaxBackoff, attempts: c.Attempts},
	}
}

// changed wakes whoever waits. The lock is held.
func (s *shelf) changed() {
	close(s.wake)
	s.wake = make(chan struct{})
	s.nudge()
}

func (s *shelf) nudge() {
	select {
	case s.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// keep is the shelf's only goroutine.
func (s *shelf) keep() {
	defer close(s.done)
	for {
		do, wait, over := s.plan()
		switch {
		case over:
			return
		case do != nil:
			do()
		case wait > 0:
			t := time.NewTimer(wait)
			select {
			case <-s.kick:
			case <-t.C:
			}
			t.Stop()
		default:
			<-s.kick
		}
	}
}

// plan chooses the next thing to do; if there is none, how long to wait for one
// (0 = until something changes), or that all is over.
func (s *shelf) plan() (do func(), wait time.Duration, over bool) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s.aside = false
	s.discard(now)
	if s.size == 0 || p.closed {
		hopeless := p.hard.Err() != nil && !slices.ContainsFunc(s.slots, func(b *slot) bool { return b.phase() != ending })
		if len(s.slots) == 0 || hopeless {
			for _, b := range s.slots {
				p.left = append(p.left, b.box.ID())
			}
			s.leaveLine()
			delete(p.shelves, s.shape)
			return nil, 0, true
		}
	}
	var due time.Time
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	for _, b := range s.slots {
		switch ph := b.phase(); {
		case ph == ending && !b.next.After(now):
			s.stepAside()
			return func() { s.destroy(b) }, 0, false
		case ph == ready && !b.next.After(now) && b.become(ready, checking):
			s.stepAside()
			s.busy = true
			return func() { s.recheck(b) }, 0, false
		case ph == ending:
			sooner(b.next)
		case ph == ready:
			sooner(b.next)
			sooner(b.stale)
		}
	}
	if s.alive() < s.target() {
		at := s.breaker.free(now)
		if !at.After(now) {
			if s.turn() {
				b := newSlot()
				s.slots = append(s.slots, b)
				s.busy = true
				s.counts.Attempts++
				return func() { s.make(b) }, 0, false
			}
			at = time.Time{} // whoever makes one now wakes us
		} else {
			s.leaveLine()
			sooner(at)
		}
	} else {
		s.leaveLine()
	}
	if due.IsZero() {
		return nil, 0, false
	}
	return nil, max(due.Sub(now), 1), false
}

// target is how many boxes there should be. The lock is held.
func (s *shelf) target() int {
	switch {
	case s.pool.closed:
		return 0
	case s.breaker.tripped():
		return min(s.size, 1)
	}
	return s.size
}

// alive is how many are or may become ready. The lock is held.
func (s *shelf) alive() int {
	n := 0
	for _, b := range s.slots {
		if b.phase() != ending {
			n++
		}
	}
	return n
}

// discard takes off what is too old or too many, the oldest first. The lock is
// held.
func (s *shelf) discard(now time.Time) {
	most := s.size
	if s.pool.closed {
		most = 0
	}
	for _, b := range s.slots {
		switch {
		case s.alive() > most && b.become(ready, ending):
			s.counts.Surplus++
			b.next = now
		case !b.stale.IsZero() && !b.stale.After(now) && b.become(ready, ending):
			s.counts.Aged++
			b.next = now
		}
	}
}

// turn reports whether it is this shelf's turn to make a box, and takes it. The
// lock is held.
func (s *shelf) turn() bool {
	p := s.pool
	if !slices.Contains(p.line, s) {
		p.line = append(p.line, s)
	}
	before := 0
	for _, other := range p.line[:slices.Index(p.line, s)] {
		if !other.aside {
			before++
		}
	}
	if before >= p.cfg.Makes-p.makes {
		return false
	}
	p.makes++
	s.leaveLine()
	return true
}

// leaveLine lets others pass. The lock is held.
func (s *shelf) leaveLine() {
	p := s.pool
	if i := slices.Index(p.line, s); i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	}
	p.nudgeLine()
}

// stepAside lets others pass while the keeper does something else. It keeps its
// place. The lock is held.
func (s *shelf) stepAside() {
	if slices.Contains(s.pool.line, s) {
		s.aside = true
		s.pool.nudgeLine()
	}
}

func (p *Pool) nudgeLine() {
	for _, s := range p.line {
		s.nudge()
	}
}

// make makes a box and looks at it.
func (s *shelf) make(b *slot) {
	p := s.pool
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.MakeTimeout)
	var made box.Lasting
	err := guard(func() (err error) { made, err = p.cfg.Make(ctx, s.shape); return err })
	cancel()
	if err == nil && made == nil {
		err = errors.New("cannot make a warm box: there is none, and no error")
	}
	b.box = made
	p.mu.Lock()
	p.makes--
	p.nudgeLine()
	if err != nil {
		s.busy = false
		if made == nil {
			b.become(making, gone)
			s.remove(b)
		} else { // it should not be there, but it is
			b.become(making, ending)
		}
		if p.ctx.Err() == nil {
			s.err = err.Error()
			s.counts.MakeFailed++
			s.breaker.failed(time.Now())
		}
		s.changed()
		p.mu.Unlock()
		return
	}
	now := time.Now()
	s.counts.Made++
	b.expires = now.Add(p.cfg.Age)
	b.stale = now.Add(p.cfg.Age - rand.N(p.cfg.Age/5+1)) // not all at once
	b.become(making, checking)
	p.mu.Unlock()
	s.recheck(b)
}

// recheck looks at a box in phase checking and puts it on the shelf, or not.
func (s *shelf) recheck(b *slot) {
	err := s.examine(s.pool.ctx, b)
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s.busy = false
	if err != nil {
		s.refuse(b, err)
		return
	}
	s.breaker.made()
	s.putBack(b, time.Now().Add(p.cfg.Every))
}

// putBack makes a box in phase checking ready. The lock is held.
func (s *shelf) putBack(b *slot, next time.Time) {
	b.next = next
	b.become(checking, ready)
	s.changed()
}

// refuse takes a box in phase checking off, because of err. The lock is held.
func (s *shelf) refuse(b *slot, err error) {
	now := time.Now()
	b.next = now
	b.become(checking, ending)
	if !s.pool.closed {
		s.err = err.Error()
		if errors.Is(err, errChanged) {
			s.counts.Changed++
		} else {
			s.counts.Unhealthy++
		}
		s.bad(now)
	}
	s.changed()
}

// bad counts a bad box. If it is the last straw, those that are ready go, too:
// they were made the same way. The lock is held.
func (s *shelf) bad(now time.Time) {
	if !s.breaker.bad(now) {
		return
	}
	for _, b := range s.slots {
		if b.become(ready, ending) {
			s.counts.Surplus++
			b.next = now
		}
	}
}

var errChanged = errors.New("cannot use a warm box: it is not as it was made")

// examine looks at a box in phase checking. The fingerprint comes last: the
// less time between it and the lease, the better.
func (s *shelf) examine(ctx context.Context, b *slot) error {
	ctx, cancel := context.WithTimeout(ctx, s.pool.cfg.CheckTimeout)
	defer cancel()
	defer context.AfterFunc(s.pool.ctx, cancel)()
	select {
	case <-b.box.Ended():
		return errors.New("cannot use a warm box: it has ended")
	default:
	}
	if err := guard(func() error { return s.pool.cfg.Check(ctx, b.box) }); err != nil {
		return fmt.Errorf("cannot use a warm box: %w", err)
	}
	var print string
	err := guard(func() (err error) { print, err = s.pool.cfg.Print(ctx, b.box); return err })
	switch {
	case err != nil:
		return fmt.Errorf("cannot use a warm box: its fingerprint: %w", err)
	case print == "":
		return errors.New("cannot use a warm box: its fingerprint is empty")
	case b.print == "":
		b.print = print
	case b.print != print:
		return errChanged
	}
	return nil
}

// destroy tries once to destroy a box in phase ending.
func (s *shelf) destroy(b *slot) {
	p := s.pool
	err := destroy(p.hard, b.box, p.cfg.DestroyTimeout)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		s.err = err.Error()
		s.counts.Stuck++
		b.tries++
		b.next = time.Now().Add(min(time.Second<<min(b.tries-1, 6), time.Minute))
		return
	}
	b.become(ending, gone)
	s.remove(b)
}

// remove takes a slot off the shelf. The lock is held.
func (s *shelf) remove(b *slot) {
	if i := slices.Index(s.slots, b); i >= 0 {
		s.slots = slices.Delete(s.slots, i, i+1)
	}
}

func destroy(ctx context.Context, b box.Lasting, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return guard(func() error { return b.Destroy(ctx) })
}

// guard makes an error of a panic: one in the keeper would end the daemon, one
// in a caller would leave a box that nobody owns.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("cannot go on: panic: %v", v)
		}
	}()
	return f()
}
