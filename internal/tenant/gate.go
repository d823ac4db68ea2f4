// Package tenant decides who may have how much of a host that several share.
//
// Each tenant has a share of boxes, processor and memory, which is taken before
// a box is made and given back when nothing is left of it. Making boxes is what
// costs most, so only so many are made at once; whoever has to wait stands in a
// line of its tenant's, and the lines take turns: a thousand requests of one
// tenant delay another's by one at most. Lines are short. Who finds one full is
// told at once when to come again.
//
// Nothing here does I/O.
package tenant

import (
	"context"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

const op = "admit"

// Amounts are what a box takes of its tenant's share.
type Amounts struct {
	Boxes    int64
	MilliCPU int64
	Memory   int64 // bytes
}

func (a Amounts) plus(b Amounts, sign int64) Amounts {
	return Amounts{a.Boxes + sign*b.Boxes, a.MilliCPU + sign*b.MilliCPU, a.Memory + sign*b.Memory}
}

// Rules bound a Gate.
type Rules struct {
	Share  Amounts       // of every tenant; a zero field is no bound
	Starts int           // boxes being made at once, by all; at least 1. Of several, one tenant gets all but one
	Line   int           // who may wait, of one tenant; at least 1
	Wait   time.Duration // the longest wait
}

// Gate admits boxes. It is safe for concurrent use.
type Gate struct {
	rules Rules

	mu     sync.Mutex
	starts int // free
	making map[string]int
	used   map[string]Amounts
	lines  lines[*waiter]
}

type waiter struct {
	wants Amounts
	in    chan struct{} // closed when admitted
}

// NewGate returns an empty gate.
func NewGate(r Rules) *Gate {
	return &Gate{rules: r, starts: max(r.Starts, 1), making: map[string]int{}, used: map[string]Amounts{}}
}

// Pass is an admission. Its methods may each be called any number of times.
type Pass struct {
	started, released func()
}

// Started says that the box is made, or will not be.
func (p *Pass) Started() { p.started() }

// Release gives the share back, and implies Started.
func (p *Pass) Release() { p.started(); p.released() }

// Enter admits a box of a tenant's, when there is a turn for it. If the share
// has no room it waits for some, if patient, or is refused at once. Errors are
// Exhausted with a time to come again, or that of ctx.
func (g *Gate) Enter(ctx context.Context, tenant string, wants Amounts, patient bool) (*Pass, error) {
	if what, most := over(wants, g.rules.Share); what != "" {
		return nil, box.Errorf(box.Exhausted, op, "cannot make a box: it wants more %s than the tenant's whole share of %d", what, most).
			WithHint("ask for less")
	}
	g.mu.Lock()
	if what, most := over(g.used[tenant].plus(wants, 1), g.rules.Share); what != "" && !patient {
		g.mu.Unlock()
		return nil, retry(box.Errorf(box.Exhausted, op, "cannot make a box: the tenant's share of %s (%d) is used up", what, most).
			WithHint("destroy boxes that are not needed any more"), time.Second)
	}
	if n := len(g.lines.of[tenant]); n >= max(g.rules.Line, 1) {
		g.mu.Unlock()
		return nil, retry(box.Errorf(box.Exhausted, op, "cannot make a box: %d requests of this tenant wait already", n), time.Second)
	}
	w := &waiter{wants: wants, in: make(chan struct{})}
	g.lines.add(tenant, w)
	g.serve()
	g.mu.Unlock()

	t := time.NewTimer(g.rules.Wait)
	defer t.Stop()
	var err error
	select {
	case <-w.in:
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.C:
		err = retry(box.Errorf(box.Exhausted, op, "cannot make a box: no turn came within %v", g.rules.Wait), time.Second)
	}
	if err != nil && g.leave(tenant, w) {
		return nil, err
	}
	p := g.pass(tenant, wants)
	if err != nil { // admitted at that very moment
		p.Release()
		return nil, err
	}
	return p, nil
}

// Keep takes a share for a box that is there already, whatever the bounds.
func (g *Gate) Keep(tenant string, has Amounts) *Pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used[tenant] = g.used[tenant].plus(has, 1)
	p := g.pass(tenant, has)
	p.started = func() {}
	return p
}

// Used is what a tenant has, and what it may have.
func (g *Gate) Used(tenant string) (used, most Amounts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used[tenant], g.rules.Share
}

// Waiting is how many wait, of all tenants.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lines.all()
}

func (g *Gate) pass(tenant string, has Amounts) *Pass {
	var started, released sync.Once
	return &Pass{
		started: func() {
			started.Do(func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.starts++
				if g.making[tenant]--; g.making[tenant] == 0 {
					delete(g.making, tenant)
				}
				g.serve()
			})
		},
		released: func() {
			released.Do(func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				if g.used[tenant] = g.used[tenant].plus(has, -1); g.used[tenant] == (Amounts{}) {
					delete(g.used, tenant)
				}
				g.serve()
			})
		},
	}
}

// serve admits as many as can be. A tenant whose share has no room is passed over,
// and so is one that makes as many as it may: what is in a box can make its start
// take long. The lock is held.
func (g *Gate) serve() {
	for g.starts > 0 {
		tenant, w, ok := g.lines.next(func(tenant string, w *waiter) bool {
			what, _ := over(g.used[tenant].plus(w.wants, 1), g.rules.Share)
			return what == "" && g.making[tenant] < max(g.rules.Starts-1, 1)
		})
		if !ok {
			return
		}
		g.starts--
		g.making[tenant]++
		g.used[tenant] = g.used[tenant].plus(w.wants, 1)
		close(w.in)
	}
}

// leave takes a waiter out of its line and reports whether it still stood there.
func (g *Gate) leave(tenant string, w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	stood := g.lines.leave(tenant, w)
	if stood {
		g.serve() // whoever stood behind may have room where this one had none
	}
	return stood
}

// over names the first amount that is over its bound.
func over(a, most Amounts) (what string, bound int64) {
	switch {
	case most.Boxes > 0 && a.Boxes > most.Boxes:
		return "boxes", most.Boxes
	case most.MilliCPU > 0 && a.MilliCPU > most.MilliCPU:
		return "cpu (thousandths of a core)", most.MilliCPU
	case most.Memory > 0 && a.Memory > most.Memory:
		return "memory (bytes)", most.Memory
	}
	return "", 0
}

func retry(e *box.Error, after time.Duration) *box.Error {
	e.Retry = after
	return e
}
