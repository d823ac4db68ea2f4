package engine

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// A host that sleeps for three hours, under boxes that live and may be idle for one
// and be paused for two: the wall clock jumps, this process's own does not.
func TestAHostThatSleepsEndsNoBoxAndMovesWhatRowsSay(t *testing.T) {
	const slept = 3 * time.Hour
	var lead atomic.Int64
	b := newBench(t, func(c *Config) {
		c.MaxPaused = 2 * time.Hour
		c.lead = func() time.Duration { return time.Duration(lead.Load()) }
	})
	runs := b.make(box.CreateRequest{TTL: time.Hour, Idle: time.Hour})
	paused := b.make(box.CreateRequest{TTL: time.Hour})
	begun := time.Now()
	if _, err := b.Pause(t.Context(), alice(), paused.ID); err != nil {
		t.Fatal(err)
	}
	since := b.pausedRow(t, paused.ID)
	<-time.After(reapEvery + 500*time.Millisecond)
	if r := b.row(t, runs.ID); !r.Ends.Equal(runs.Ends) { // the control: nothing moves by itself
		t.Fatalf("it ends at %v, and was told %v", r.Ends, runs.Ends)
	}
	for _, by := range []time.Duration{slept, -slept, 24 * time.Hour, -24 * time.Hour} { // and a clock that is set, and set back
		lead.Add(int64(by))
		now := time.Duration(lead.Load())
		for _, i := range []box.Info{runs, paused} {
			end := time.Now().Add(longest)
			for !about(b.row(t, i.ID).Ends, i.Ends.Add(now)) {
				if time.Now().After(end) {
					t.Fatalf("after %v it ends at %v, and was told %v", by, b.row(t, i.ID).Ends, i.Ends)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		if got := b.pausedRow(t, paused.ID); !about(got, since.Add(now)) {
			t.Errorf("after %v it was paused at %v, and had been at %v", by, got, since)
		}
		<-time.After(2 * reapEvery) // it would be reaped
		b.phase(runs.ID, box.PhaseRunning)
		b.phase(paused.ID, box.PhasePaused)
	}
	i, err := b.Prolong(t.Context(), alice(), runs.ID, 2*time.Hour)
	if err != nil || i.Ends.Before(runs.Ends) {
		t.Errorf("prolonged to %v, %v", i.Ends, err)
	}
	if _, err := b.Resume(t.Context(), alice(), paused.ID); err != nil {
		t.Error(err)
	}
	if r, most := b.row(t, paused.ID), time.Since(begun)+time.Second; r.Ends.Sub(paused.Ends) > most {
		t.Errorf("the end of one that was paused for %v at most moved by %v", most, r.Ends.Sub(paused.Ends))
	}
}

// A wall clock that is set by a day while no daemon runs is all that the next one
// has: rows that are a day older, or younger, are the same to it.
func TestAClockThatIsSetWhileNoDaemonRunsCounts(t *testing.T) {
	b := newBench(t, nil)
	set := map[box.ID]time.Duration{}
	for _, by := range []time.Duration{24 * time.Hour, 0, -24 * time.Hour} {
		set[b.make(box.CreateRequest{TTL: time.Hour}).ID] = by
	}
	for id, by := range set {
		if _, err := b.st.Change(t.Context(), id, func(r *box.Record) error { r.Ends = r.Ends.Add(-by); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	b.again()
	for id, by := range set {
		if by > 0 {
			b.becomes(id, box.ReasonTTL)
		}
	}
	<-time.After(2 * reapEvery)
	for id, by := range set {
		if by <= 0 {
			b.phase(id, box.PhaseRunning)
		}
	}
}

// The real lead is none while nothing happens.
func TestClocksThatGoTogetherHaveNoLead(t *testing.T) {
	lead := leadFrom(time.Now())
	<-time.After(50 * time.Millisecond)
	if d := lead(); d.Abs() > clocksApart {
		t.Errorf("the lead is %v", d)
	}
}

func about(a, b time.Time) bool { return a.Sub(b).Abs() < time.Second }

func (b *bench) row(t *testing.T, id box.ID) box.Record {
	t.Helper()
	r, err := b.st.Box(t.Context(), alice().Tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) pausedRow(t *testing.T, id box.ID) time.Time {
	t.Helper()
	var k kept
	if err := json.Unmarshal(b.row(t, id).Spec, &k); err != nil {
		t.Fatal(err)
	}
	return k.Paused
}
