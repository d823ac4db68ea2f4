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
	const most, ttl = 4 * time.Second, 1500 * time.Millisecond
	b := newBench(t, func(c *Config) { c.MaxPaused = most })
	i := b.make(box.CreateRequest{TTL: ttl})
	pause := func() {
		t.Helper()
		if _, err := b.Pause(t.Context(), alice(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	pause()
	<-time.After(3 * time.Second)
	r, err := b.Resume(t.Context(), alice(), i.ID)
	if moved := r.Ends.Sub(i.Ends); err != nil || moved < 3*time.Second || moved >= most {
		t.Fatalf("a pause of three seconds moved its end by %v, %v", moved, err)
	}
	pause()
	<-time.After(1500 * time.Millisecond)
	p, err := b.Inspect(t.Context(), alice(), i.ID)
	if moved := p.Ends.Sub(i.Ends); err != nil || moved != most {
		t.Errorf("two pauses of more than %v together moved its end by %v, %v", most, moved, err)
	}
	got := b.phase(i.ID, box.PhaseDestroyed)
	if got.Reason != box.ReasonTTL || !strings.Contains(got.Detail, "its pauses have moved") {
		t.Errorf("it ended for %q: %q", got.Reason, got.Detail)
	}
	if late := got.Destroyed.Sub(p.Ends); late < -time.Second/10 || late > 2*time.Second {
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
	if _, err := b.Resume(t.Context(), alice(), i.ID); err != nil || moved() < 50*time.Millisecond {
		t.Errorf("a pause moved its end by %v, %v", moved(), err)
	}
	for _, d := range []time.Duration{time.Second, time.Hour} { // the first changes nothing
		was := moved()
		if _, err := b.Prolong(t.Context(), alice(), i.ID, d); err != nil || (moved() == was) != (d == time.Second) {
			t.Errorf("prolonged by %v: %v became %v, %v", d, was, moved(), err)
		}
	}
}
