package tiertest

import (
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

// A program that may run for so long is paused for longer than that: it lives on,
// and is ended when it has run for the rest of it.
func TestThePauseOfABoxIsNoTimeOfItsPrograms(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		t.Parallel() // nothing is measured but waiting
		b := p.create(t, spec())
		defer p.destroy(t, b)
		s := pauser(t, b)
		g := guest.New(b.Agent, unhurried)
		defer g.Close()
		const limit = 2 * time.Second
		began := time.Now()
		made, err := g.Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/usr/bin:/bin"}}, Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		do(t, g.Hold)
		do(t, s.Pause)
		const stood = limit + time.Second
		<-time.After(stood)
		do(t, s.Resume)
		if err := g.Renew(t.Context(), box.Renewal{Slept: stood}); err != nil {
			t.Fatal(err)
		}
		all, err := g.Processes(t.Context())
		if err != nil || len(all) != 1 || all[0].End != nil && time.Since(began) < limit+stood {
			t.Fatalf("after the pause: %+v (%v)", all, err)
		}
		var end *box.End
		err = g.Follow(t.Context(), box.ProcessRef{PID: made.PID}, box.Positions{}, func(e box.ProcessEvent) error {
			end = e.End
			return nil
		})
		if took := time.Since(began); err != nil || end == nil || end.Cause != box.Deadline || took < limit+stood-100*time.Millisecond {
			t.Errorf("it ended as %+v after %v (%v)", end, took, err)
		}
	})
}

// What a copy of the box's memory needs: no stream to its agent.
func TestABoxIsParkedAndGoesOn(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		defer p.destroy(t, b)
		g := guest.New(b.Agent, unhurried)
		defer g.Close()
		for range 3 {
			if _, err := g.Metrics(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := g.Park(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("parked in %v", time.Since(began))
			g.Unpark()
			if err := g.Renew(t.Context(), box.Renewal{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
