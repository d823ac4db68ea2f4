package pool

import (
	"testing"
	"time"
)

func newBreaker() *breaker {
	return &breaker{trip: 3, first: time.Second, most: 30 * time.Second, attempts: 10}
}

func TestFailuresBetweenSuccessesAreBoundedByTheMinute(t *testing.T) {
	b, now, n := newBreaker(), time.Now(), 0
	for end := now.Add(10 * time.Minute); now.Before(end); now = now.Add(100 * time.Millisecond) {
		if !b.free(now).After(now) {
			b.bad(now)
			b.worked(b.batch)
			n++
		}
	}
	if n < 50 || n > 100 || len(b.recent) > b.attempts {
		t.Errorf("%d failures in ten minutes, want at most %d a minute; %d remembered", n, b.attempts, len(b.recent))
	}
}

func TestDelaysDoubleUpToTheLongest(t *testing.T) {
	b, now := newBreaker(), time.Now()
	b.attempts = 1000
	for i, most := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
		b.failed(now)
		d := b.free(now).Sub(now)
		if d > most*time.Second || d < most*time.Second/2 {
			t.Errorf("delay %d is %v, want half to all of %ds", i, d, most)
		}
		now = b.free(now)
	}
	b.made()
	b.failed(now)
	if d := b.free(now).Sub(now); d > time.Second {
		t.Errorf("after a success the delay is %v", d)
	}
}

func TestDelaysOfManyShapesDiffer(t *testing.T) {
	now, seen := time.Now(), map[time.Time]bool{}
	for range 50 {
		b := newBreaker()
		b.failed(now)
		seen[b.free(now)] = true
	}
	if len(seen) < 40 {
		t.Errorf("50 shapes come back at %d moments", len(seen))
	}
}

func TestMakingIsNoProofOfWorking(t *testing.T) {
	b, now := newBreaker(), time.Now()
	for range 3 {
		b.bad(now)
	}
	b.made()
	if !b.poisoned(now) {
		t.Error("a box that could be made closed the circuit")
	}
	b.worked(b.batch - 1)
	if !b.poisoned(now) {
		t.Error("a box of an earlier batch closed the circuit")
	}
	b.worked(b.batch)
	if b.poisoned(now) || b.free(now).After(now) {
		t.Error("a box that worked did not")
	}
}
