package tenant

import (
	"context"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// TurnRules bound a Turns.
type TurnRules struct {
	All  int // who may be at it at once; at least 1
	Each int // of one tenant: fewer than All, so that one that keeps its turns leaves others some; at least 1
	Line int // who may wait, of one tenant; at least 1
}

// Turns bounds how many are at something that takes long, and that a tenant can make
// take longer. Who waits stands in a line of its tenant's, and the lines take turns.
// It is safe for concurrent use.
type Turns struct {
	rules TurnRules

	mu    sync.Mutex
	free  int
	has   map[string]int
	lines lines[chan struct{}] // each closed when its turn comes
}

// NewTurns returns one that nobody is at.
func NewTurns(r TurnRules) *Turns {
	return &Turns{rules: r, free: max(r.All, 1), has: map[string]int{}}
}

// Take waits for a turn; done, which may be called any number of times, ends it.
// Errors are Exhausted of a line that is full, with a time to come again, or that
// of ctx.
func (t *Turns) Take(ctx context.Context, tenant string) (done func(), err error) {
	t.mu.Lock()
	if n := len(t.lines.of[tenant]); n >= max(t.rules.Line, 1) {
		t.mu.Unlock()
		return nil, retry(box.Errorf(box.Exhausted, op, "cannot begin: %d requests of this tenant wait for their turn already", n), time.Second)
	}
	in := make(chan struct{})
	t.lines.add(tenant, in)
	t.serve()
	t.mu.Unlock()
	var over sync.Once
	done = func() { over.Do(func() { t.end(tenant) }) }
	select {
	case <-in:
		return done, nil
	case <-ctx.Done():
	}
	if !t.leave(tenant, in) { // it came at that very moment
		done()
	}
	return nil, ctx.Err()
}

func (t *Turns) end(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.has[tenant]--; t.has[tenant] == 0 {
		delete(t.has, tenant)
	}
	t.serve()
}

// serve gives turns to as many as may have one. The lock is held.
func (t *Turns) serve() {
	for t.free > 0 {
		tenant, in, ok := t.lines.next(func(tenant string, _ chan struct{}) bool { return t.has[tenant] < max(t.rules.Each, 1) })
		if !ok {
			return
		}
		t.free--
		t.has[tenant]++
		close(in)
	}
}

// leave takes one out of its line and reports whether it still stood there.
func (t *Turns) leave(tenant string, in chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines.leave(tenant, in)
}
