package engine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// A box that is paused again and again has an end all the same: all its pauses move
// that by no more than one may last.
func TestPausesMoveABoxsEndByNoMoreThanOneMayLast(t *testing.T) {
	t.Parallel() // it mostly waits
	// Five seconds of room wherever one thing has to be done before another happens: a
	// host may be busy.
	const ttl, first, second, most = 5 * time.Second, 10 * time.Second, 5500 * time.Millisecond, 15 * time.Second
	b := newBench(t, func(c *Config) { c.MaxPaused = most })
	i := b.make(box.CreateRequest{TTL: ttl})
	pause := func() {
		t.Helper()
		if _, err := b.Pause(t.Context(), alice(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	pause()
	<-time.After(first)
	r, err := b.Resume(t.Context(), alice(), i.ID)
	if moved := r.Ends.Sub(i.Ends); err != nil || moved < first-2*time.Millisecond || moved >= most {
		t.Fatalf("a pause of %v moved its end by %v, %v", first, moved, err)
	}
	pause()
	<-time.After(second)
	p, err := b.Inspect(t.Context(), alice(), i.ID)
	if moved := p.Ends.Sub(i.Ends); err != nil || moved != most {
		t.Errorf("two pauses of more than %v together moved its end by %v, %v", most, moved, err)
	}
	got := b.phase(i.ID, box.PhaseDestroyed)
	if got.Reason != box.ReasonTTL || !strings.Contains(got.Detail, "its pauses have moved") {
		t.Errorf("it ended for %q: %q", got.Reason, got.Detail)
	}
	if late := got.Destroyed.Sub(p.Ends); late < -time.Second/10 || late > longest {
		t.Errorf("it ended %v after its end", late)
	}
}

// Who gives a box another end gives its pauses their time again.
func TestAProlongedBoxMayBePausedAsIfItWereNew(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxPaused = time.Hour })
	i := b.make(box.CreateRequest{TTL: time.Minute})
	moved := func() time.Duration {
		var k kept
		if err := json.Unmarshal(b.row(t, i.ID).Spec, &k); err != nil {
			t.Fatal(err)
		}
		return k.Moved
	}
	if _, err := b.Pause(t.Context(), alice(), i.ID); err != nil {
		t.Fatal(err)
	}
	<-time.After(50 * time.Millisecond)
	if _, err := b.Resume(t.Context(), alice(), i.ID); err != nil || moved() < 48*time.Millisecond { // to the millisecond
		t.Errorf("a pause moved its end by %v, %v", moved(), err)
	}
	for _, d := range []time.Duration{time.Second, time.Hour} { // the first changes nothing
		was := moved()
		if _, err := b.Prolong(t.Context(), alice(), i.ID, d); err != nil || (moved() == was) != (d == time.Second) {
			t.Errorf("prolonged by %v: %v became %v, %v", d, was, moved(), err)
		}
	}
}
