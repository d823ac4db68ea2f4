// Package pool keeps boxes warm: made before anybody asks for them, so that a
// request waits for a lease in place of a start.
//
// A warm box is dangerous in two ways, and most of this package is about them.
// It could serve two people; and it could have been changed by somebody before
// its first user comes. So a box is in one phase at a time, a table says which
// may follow which, and every change is a compare-and-swap that one goroutine
// wins. There is no way back from a lease: a used box is destroyed, never
// cleaned, since nobody can tell what a program left in it. Until its lease a
// box is nobody's: the pool tells numbers, and hands out no box, no list and no
// name. Before a lease the box is asked whether it lives, and what it is made of is
// compared with what it was when it was made.
//
// The third danger is the pool itself. When boxes cannot be made, or turn out
// bad, a careless pool makes new ones as fast as the host can, and takes the
// machine from those who have work to do. Here each shape has one goroutine,
// which does one thing at a time; failures double the time to the next attempt,
// and only so many may happen in a minute. Whoever asks meanwhile is told at
// once, and why, and takes the cold path: a pool makes things faster, and
// nothing may depend on it.
//
// Nothing here does I/O: making, checking and fingerprints are given.
package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

const op = "pool boxes"

// Config is what a pool is made of. The functions are called by several
// goroutines at once, end when their context does, and are not called with the
// same box twice at a time.
type Config struct {
	// Make makes a box of a shape with nothing of anybody's in it. It comes after
	// requests: it may wait for its turn. A box that is returned is the pool's.
	Make func(context.Context, Shape) (box.Lasting, error)
	// Check asks the box whether it can be used.
	Check func(context.Context, box.Lasting) error
	// Print is a fingerprint of all that must not change before the lease, as
	// seen from outside the box as far as possible: who can change a box could
	// also make its agent lie.
	Print func(context.Context, box.Lasting) (string, error)

	Makes          int           // boxes being made at once, of all shapes; at least 1
	MakeTimeout    time.Duration // of Make
	CheckTimeout   time.Duration // of Check and Print together
	DestroyTimeout time.Duration // of one attempt
	Every          time.Duration // between checks of a box
	Age            time.Duration // no box is leased that is older
	Wait           time.Duration // the longest wait for a box that is on its way; 0 = none

	Trip       int           // bad boxes in a row that poison a shape; at least 1
	Backoff    time.Duration // after the first failure; doubled with each further one
	MaxBackoff time.Duration
	Attempts   int // failures of a shape in a minute; at least 1
}

// Pool keeps warm boxes. It is safe for concurrent use.
type Pool struct {
	cfg  Config
	ctx  context.Context // ends when the pool closes
	stop context.CancelFunc
	hard context.Context // ends when nobody waits for the end any more
	kill context.CancelFunc

	mu      sync.Mutex
	closed  bool
	shelves map[Shape]*shelf
	line    []*shelf // who wants to make a box, first come first
	makes   int      // under way
	left    []box.ID // could not be destroyed
}

// New returns a pool that keeps nothing yet.
func New(c Config) (*Pool, error) {
	switch {
	case c.Make == nil || c.Check == nil || c.Print == nil:
		return nil, box.Errorf(box.Fault, op, "cannot make a pool: a function is missing")
	case c.MakeTimeout <= 0 || c.CheckTimeout <= 0 || c.DestroyTimeout <= 0 || c.Every <= 0 || c.Age <= 0 || c.Wait < 0 || c.Backoff <= 0:
		return nil, box.Errorf(box.Invalid, op, "cannot make a pool: a time is not positive")
	case c.MaxBackoff < c.Backoff:
		return nil, box.Errorf(box.Invalid, op, "cannot make a pool: the longest delay %v is less than the first, %v", c.MaxBackoff, c.Backoff)
	case c.Makes < 1 || c.Trip < 1 || c.Attempts < 1:
		return nil, box.Errorf(box.Invalid, op, "cannot make a pool: a number is less than 1")
	}
	p := &Pool{cfg: c, shelves: map[Shape]*shelf{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.hard, p.kill = context.WithCancel(context.Background())
	return p, nil
}

// Resize keeps n boxes of a shape from now on, at once in its answer and step
// by step in fact. With 0 those that are there are destroyed, and the shape is
// forgotten. Leased boxes do not count.
func (p *Pool) Resize(s Shape, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case n < 0:
		return box.Errorf(box.Invalid, op, "cannot keep %d boxes", n)
	case p.closed:
		return box.Errorf(box.Conflict, op, "cannot keep boxes: the pool is closed")
	}
	sh := p.shelves[s]
	switch {
	case sh == nil && n == 0:
		return nil
	case sh == nil:
		sh = newShelf(p, s)
		p.shelves[s] = sh
		go sh.keep()
	}
	sh.size = n
	sh.changed()
	return nil
}

// Drain forgets all shapes and returns when their warm boxes are destroyed, or
// with an error when ctx ends before: the rest goes on. It does not end before
// a shape that is meanwhile resized again.
func (p *Pool) Drain(ctx context.Context) error {
	for _, s := range p.all(func(s *shelf) { s.size = 0 }) {
		select {
		case <-s.done:
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the end of the warm boxes: %w", ctx.Err())
		}
	}
	return nil
}

// Close ends the pool for good and returns when nothing of it runs any more.
// Until ctx ends it tries to destroy what is there, and says what it could not.
// Leased boxes are their holders', and stay.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	all := p.all(func(*shelf) {})
	for _, s := range all {
		select {
		case <-s.done:
			continue
		case <-ctx.Done():
		}
		p.kill()
		p.all(func(*shelf) {})
		<-s.done
	}
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) > 0 {
		return box.Errorf(box.Fault, op, "cannot destroy warm boxes: %v are left", p.left)
	}
	return nil
}

// all does something to all shelves and wakes them.
func (p *Pool) all(do func(*shelf)) []*shelf {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*shelf
	for _, s := range p.shelves {
		do(s)
		s.changed()
		out = append(out, s)
	}
	return out
}
