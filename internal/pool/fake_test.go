package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// fakeBox lives, can be tampered with, and remembers how often it was destroyed.
type fakeBox struct {
	box.Lasting // nil: whatever is not below must not be called
	id          box.ID
	w           *world
	ended       chan struct{}

	// guarded by w.mu
	sick      error
	hangs     bool // its check ends with its context only
	content   string
	destroyed int
	clings    int // attempts to destroy it that fail
}

func (b *fakeBox) ID() box.ID             { return b.id }
func (b *fakeBox) Ended() <-chan struct{} { return b.ended }
func (b *fakeBox) Destroy(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if b.clings > 0 {
		b.clings--
		return errors.New("cannot destroy: busy")
	}
	b.destroyed++
	return nil
}

// world is a host on which boxes can be made, as its knobs say.
type world struct {
	mu     sync.Mutex
	takes  time.Duration // to make a box
	asks   time.Duration // to check one
	fails  error         // to make one
	late   bool          // a making that is cancelled still gives its box
	onMake func(*fakeBox)
	tries  []time.Time
	at     int // makings under way
	most   int
	boxes  []*fakeBox
}

func (w *world) make(ctx context.Context, _ Shape) (box.Lasting, error) {
	w.mu.Lock()
	w.tries = append(w.tries, time.Now())
	w.at++
	w.most = max(w.most, w.at)
	takes, fails, late := w.takes, w.fails, w.late
	w.mu.Unlock()
	var err error
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		err = ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at--
	if err = errors.Join(err, fails); err != nil && !late {
		return nil, err
	}
	b := &fakeBox{id: box.NewID(), w: w, ended: make(chan struct{}), content: "as made"}
	if w.onMake != nil {
		w.onMake(b)
	}
	w.boxes = append(w.boxes, b)
	return b, err
}

func (w *world) check(ctx context.Context, l box.Lasting) error {
	b := l.(*fakeBox)
	w.mu.Lock()
	takes, sick, hangs := w.asks, b.sick, b.hangs
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(takes):
		return sick
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *world) print(ctx context.Context, l box.Lasting) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.(*fakeBox).content, ctx.Err()
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// alive lists the boxes that are not destroyed.
func (w *world) alive() []*fakeBox {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.boxes), func(b *fakeBox) bool { return b.destroyed > 0 })
}

func (w *world) tried() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tries)
}

// record is how many boxes were ever made at once.
func (w *world) record() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

func newWorld() *world { return &world{takes: 100 * time.Millisecond, asks: 5 * time.Millisecond} }

func (w *world) config() Config {
	return Config{
		Make: w.make, Check: w.check, Print: w.print,
		Makes: 1, MakeTimeout: 30 * time.Second, CheckTimeout: 2 * time.Second, DestroyTimeout: 10 * time.Second,
		Every: 10 * time.Second, Age: time.Hour, Wait: 250 * time.Millisecond,
		Trip: 3, Backoff: time.Second, MaxBackoff: 30 * time.Second, Attempts: 10,
	}
}

func shape(name string) Shape { return Shape{Tier: box.TierGvisor, Image: "base", Template: name} }

// inPool runs f with a pool in a bubble; at its end nothing is left: no warm
// box, no goroutine (the bubble sees to that) and no box destroyed twice.
func inPool(t *testing.T, knobs func(*world, *Config), f func(t *testing.T, w *world, p *Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.config()
		if knobs != nil {
			knobs(w, &c)
		}
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		f(t, w, p)
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if l, miss := p.Lease(t.Context(), shape("a")); l != nil || miss != MissClosed {
			t.Errorf("a lease from a closed pool: %v, %q", l, miss)
		}
		if n := len(p.Stats()); n > 0 {
			t.Errorf("%d shapes in a closed pool", n)
		}
		for _, b := range w.alive() {
			t.Errorf("box %s is left", b.id)
		}
		for _, b := range w.boxes {
			if b.destroyed > 1 {
				t.Errorf("box %s was destroyed %d times", b.id, b.destroyed)
			}
		}
	})
}

// fill keeps n boxes and waits until they are ready.
func fill(t *testing.T, w *world, p *Pool, n int) {
	t.Helper()
	if err := p.Resize(shape("a"), n); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(n) * time.Second)
	if st := rests(t, w, p); st.Ready != n {
		t.Fatalf("%d boxes ready, want %d: %+v", st.Ready, n, st)
	}
}

func stat(t *testing.T, p *Pool) Stat {
	t.Helper()
	synctest.Wait()
	all := p.Stats()
	if len(all) != 1 {
		t.Fatalf("%d shapes, want one", len(all))
	}
	return all[0]
}

// rests is what there is at a moment at which no box is looked at. A look takes a
// little of the time of each, and any moment can fall into one.
func rests(t *testing.T, w *world, p *Pool) Stat {
	t.Helper()
	for range 1000 {
		if st := stat(t, p); st.Checking == 0 {
			return st
		}
		time.Sleep(w.asks / 5)
	}
	t.Fatalf("boxes are looked at all the time: %+v", stat(t, p))
	return Stat{}
}

// lease gets a box, or fails the test.
func lease(t *testing.T, p *Pool) *Lease {
	t.Helper()
	l, miss := p.Lease(t.Context(), shape("a"))
	if l == nil {
		t.Fatalf("no box: %s", miss)
	}
	return l
}

func end(t *testing.T, l *Lease) {
	t.Helper()
	if err := l.End(t.Context()); err != nil {
		t.Error(err)
	}
}

// story counts what several callers got.
type story struct {
	mu     sync.Mutex
	leases []*Lease
	misses map[Miss]int
	most   time.Duration // the longest call
}

// ask lets n callers ask at once, and waits for all.
func ask(t *testing.T, p *Pool, n int) *story {
	s := &story{misses: map[Miss]int{}}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			start := time.Now()
			l, miss := p.Lease(t.Context(), shape("a"))
			took := time.Since(start)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.most = max(s.most, took)
			if (l == nil) != (miss != "") {
				t.Errorf("a lease %v with the miss %q", l, miss)
			}
			if l == nil {
				s.misses[miss]++
			} else {
				s.leases = append(s.leases, l)
			}
		})
	}
	all.Wait()
	return s
}

// distinct fails the test if a box was handed out twice.
func (s *story) distinct(t *testing.T) {
	t.Helper()
	seen := map[box.ID]int{}
	for _, l := range s.leases {
		seen[l.Box.ID()]++
	}
	maps.DeleteFunc(seen, func(_ box.ID, n int) bool { return n == 1 })
	if len(seen) > 0 {
		t.Errorf("handed out more than once: %s", fmt.Sprint(seen))
	}
}
