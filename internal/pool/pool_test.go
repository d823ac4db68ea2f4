package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func TestTwoHundredAskForFiveBoxes(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 5)
		s := ask(t, p, 200)
		s.distinct(t)
		// Five that were there, and those that were made within the wait.
		if n := len(s.leases); n < 6 || n > 8 {
			t.Errorf("%d leases, want 5 and what is made in %v", n, p.cfg.Wait)
		}
		if most := p.cfg.Wait + p.cfg.CheckTimeout; s.most > most || s.misses[MissEmpty] < 190 || s.misses[MissLate] == 0 {
			t.Errorf("waited up to %v, allowed %v; misses %v", s.most, most, s.misses)
		}
		t.Logf("200 callers, 5 boxes: %d leases, longest call %v, misses %v", len(s.leases), s.most, s.misses)
		for _, l := range s.leases {
			end(t, l)
		}
		time.Sleep(10 * time.Second)
		if st := rests(t, w, p); st.Ready != 5 || st.Waiting != 0 {
			t.Errorf("not filled again: %+v", st)
		}
		if most := w.record(); most > 1 {
			t.Errorf("%d boxes made at once", most)
		}
	})
}

func TestWithoutAWaitWhoFindsNoneIsToldAtOnce(t *testing.T) {
	inPool(t, func(_ *world, c *Config) { c.Wait = 0 }, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 5)
		s := ask(t, p, 200)
		s.distinct(t)
		if len(s.leases) != 5 || s.misses[MissEmpty] != 195 || s.most > w.asks {
			t.Errorf("%d leases, misses %v, longest call %v", len(s.leases), s.misses, s.most)
		}
		for _, l := range s.leases {
			end(t, l)
		}
	})
}

func TestABoxThatWasUsedIsDestroyedAndNeverSeenAgain(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 2)
		seen := map[box.ID]bool{}
		for range 20 {
			l := lease(t, p)
			if seen[l.Box.ID()] {
				t.Fatalf("box %s came back", l.Box.ID())
			}
			seen[l.Box.ID()] = true
			l.Worked()
			end(t, l)
			end(t, l) // is no error, and destroys nothing twice
			time.Sleep(time.Second)
		}
		if st := stat(t, p); st.Leased != 20 || st.Worked != 20 {
			t.Errorf("%+v", st.Counts)
		}
	})
}

func TestRefillThatFailsForAMinuteDoesNotSpin(t *testing.T) {
	inPool(t, func(w *world, c *Config) { w.takes = time.Millisecond }, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 5)
		w.set(func() { w.fails = errors.New("cannot make: no memory") })
		before := w.tried()
		s := ask(t, p, 5)
		for _, l := range s.leases {
			end(t, l)
		}
		start := time.Now()
		for time.Since(start) < time.Minute {
			at := time.Now()
			if l, miss := p.Lease(t.Context(), shape("a")); l != nil || miss == "" {
				t.Fatalf("a box from nowhere: %v, %q", l, miss)
			}
			if took := time.Since(at); took > p.cfg.Wait {
				t.Errorf("waited %v", took)
			}
			time.Sleep(50 * time.Millisecond)
		}
		n := w.tried() - before
		t.Logf("a minute of failures: %d attempts, %v", n, stat(t, p).Misses)
		if n < 4 || n > p.cfg.Attempts {
			t.Errorf("%d attempts in a minute, want a few and at most %d", n, p.cfg.Attempts)
		}
		if st := stat(t, p); st.MakeFailed != int64(n) || st.Error == "" || st.Held <= 0 || st.Poisoned {
			t.Errorf("%+v", st)
		}
		w.set(func() { w.fails = nil })
		time.Sleep(p.cfg.MaxBackoff + 10*time.Second)
		if st := rests(t, w, p); st.Ready != 5 || st.Held != 0 {
			t.Errorf("not filled after the failure was over: %+v", st)
		}
	})
}

func TestBoxesThatPassHealthAndFailOnUsePoisonTheShape(t *testing.T) {
	inPool(t, func(w *world, c *Config) { w.takes = time.Millisecond }, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 5)
		for range 3 {
			l := lease(t, p)
			if err := l.Failed(t.Context(), errors.New("cannot use it")); err != nil {
				t.Error(err)
			}
		}
		if _, miss := p.Lease(t.Context(), shape("a")); miss != MissBroken {
			t.Errorf("a lease from a poisoned shape: %q", miss)
		}
		time.Sleep(50 * time.Millisecond) // the one in the keeper's hand stays, to be tried
		if st := stat(t, p); !st.Poisoned || st.Failed != 3 || len(w.alive()) > 1 {
			t.Errorf("%+v, %d alive", st, len(w.alive()))
		}
		// Whoever asks as fast as they can gets few, and each one fails.
		before, failed := w.tried()-len(w.alive()), 0
		for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(20 * time.Millisecond) {
			if l, _ := p.Lease(t.Context(), shape("a")); l != nil {
				failed++
				if err := l.Failed(t.Context(), errors.New("cannot use it")); err != nil {
					t.Error(err)
				}
			}
		}
		n := w.tried() - before
		t.Logf("a minute of bad boxes: %d made, %d leased", n, failed)
		if failed == 0 || n > p.cfg.Attempts || failed > n {
			t.Errorf("%d made and %d leased in a minute, want some and at most %d", n, failed, p.cfg.Attempts)
		}
		// One that works closes the circuit.
		var l *Lease
		for range 100 {
			if l, _ = p.Lease(t.Context(), shape("a")); l != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if l == nil {
			t.Fatal("no box was tried again")
		}
		if st := stat(t, p); st.Ready+st.Making > 1 {
			t.Errorf("more than one is tried: %+v", st)
		}
		l.Worked()
		end(t, l)
		time.Sleep(time.Minute)
		if st := rests(t, w, p); st.Ready != 5 || st.Poisoned {
			t.Errorf("%+v", st)
		}
	})
}

func TestAHolderWhoFailsAfterSuccessDoesNotCountTwice(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 1)
		l := lease(t, p)
		l.Worked()
		if err := l.Failed(t.Context(), errors.New("its own program did")); err != nil {
			t.Error(err)
		}
		if st := stat(t, p); st.Worked != 1 || st.Failed != 0 {
			t.Errorf("%+v", st.Counts)
		}
	})
}

func TestABoxThatWasChangedBeforeItsLeaseIsNotLeased(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 2)
		bad := w.alive()[0] // the next one
		w.set(func() { bad.content = "a back door" })
		l := lease(t, p)
		if l.Box == box.Lasting(bad) {
			t.Fatal("the changed box was leased")
		}
		l.Worked()
		end(t, l)
		if st := stat(t, p); st.Changed != 1 || bad.destroyed != 1 {
			t.Errorf("%+v, destroyed %d times", st.Counts, bad.destroyed)
		}
	})
}

func TestAllBoxesChangedIsToldAsThat(t *testing.T) {
	inPool(t, func(_ *world, c *Config) { c.Wait = 0 }, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 2)
		for _, b := range w.alive() {
			w.set(func() { b.content = "a back door" })
		}
		if l, miss := p.Lease(t.Context(), shape("a")); l != nil || miss != MissBad {
			t.Errorf("%v, %q", l, miss)
		}
	})
}

func TestWhatFailsItsCheckIsReplacedWithoutAnybodyAsking(t *testing.T) {
	spoil := map[string]func(*fakeBox){
		"sick":    func(b *fakeBox) { b.sick = errors.New("ill") },
		"hangs":   func(b *fakeBox) { b.hangs = true },
		"changed": func(b *fakeBox) { b.content = "else" },
		"erased":  func(b *fakeBox) { b.content = "" },
		"dead":    func(b *fakeBox) { close(b.ended) },
	}
	for what, do := range spoil {
		t.Run(what, func(t *testing.T) {
			inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
				fill(t, w, p, 3)
				bad := w.alive()[1]
				w.set(func() { do(bad) })
				time.Sleep(p.cfg.Every + 10*time.Second)
				st := rests(t, w, p)
				if bad.destroyed != 1 || st.Ready != 3 || st.Unhealthy+st.Changed != 1 {
					t.Errorf("%+v, destroyed %d times", st, bad.destroyed)
				}
			})
		})
	}
}

func TestALeaseOfAHungBoxIsBounded(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 3)
		for _, b := range w.alive() {
			w.set(func() { b.hangs = true })
		}
		start := time.Now()
		l, miss := p.Lease(t.Context(), shape("a"))
		if took := time.Since(start); l != nil || miss != MissBad || took > p.cfg.Wait+p.cfg.CheckTimeout {
			t.Errorf("%v, %q after %v", l, miss, took)
		}
	})
}

func TestACallerWhoGoesAwayDoesNotSpoilTheBox(t *testing.T) {
	inPool(t, func(w *world, _ *Config) { w.asks = time.Second }, func(t *testing.T, w *world, p *Pool) {
		if err := p.Resize(shape("a"), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if l, miss := p.Lease(ctx, shape("a")); l != nil || miss != MissCanceled {
				t.Errorf("%v, %q", l, miss)
			}
			cancel()
			time.Sleep(2 * time.Second)
		}
		if st := stat(t, p); st.Attempts != 1 || st.Unhealthy != 0 || st.Ready != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestNoBoxIsLeasedThatIsTooOld(t *testing.T) {
	inPool(t, func(_ *world, c *Config) { c.Age = time.Minute }, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 5)
		first := w.alive()
		made := map[box.ID]time.Time{}
		for i := range 300 {
			for _, b := range w.alive() {
				if made[b.id].IsZero() {
					made[b.id] = time.Now()
				}
			}
			time.Sleep(time.Second)
			if i%40 == 39 {
				l := lease(t, p)
				if age := time.Since(made[l.Box.ID()]); age > p.cfg.Age {
					t.Errorf("a box of %v was leased", age)
				}
				end(t, l)
			}
		}
		for _, b := range first {
			if b.destroyed != 1 {
				t.Errorf("box %s of the beginning is there after five ages", b.id)
			}
		}
		if st := stat(t, p); st.Aged < 15 || st.Attempts > 40 || st.Ready < 4 {
			t.Errorf("%+v", st)
		}
	})
}

func TestResizeGrowsAndShrinksWhileItRuns(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		for _, n := range []int{3, 6, 1, 4} {
			if err := p.Resize(shape("a"), n); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if st := rests(t, w, p); st.Ready != n || len(w.alive()) != n {
				t.Errorf("%d wanted: %+v, %d alive", n, st, len(w.alive()))
			}
		}
		l := lease(t, p)
		if err := p.Resize(shape("a"), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := len(p.Stats()); n != 0 || len(w.alive()) != 1 {
			t.Errorf("%d shapes kept, %d boxes alive beside the leased one", n, len(w.alive())-1)
		}
		if _, miss := p.Lease(t.Context(), shape("a")); miss != MissShape {
			t.Error(miss)
		}
		end(t, l)
		if box.KindOf(p.Resize(shape("a"), -1)) != box.Invalid {
			t.Error("a negative size was taken")
		}
	})
}

func TestShapesTakeTurnsAtMaking(t *testing.T) {
	inPool(t, func(w *world, c *Config) { c.Makes = 2 }, func(t *testing.T, w *world, p *Pool) {
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			if err := p.Resize(shape(name), 50); err != nil {
				t.Fatal(err)
			}
		}
		for range 12 {
			time.Sleep(time.Second)
			least, most := int64(1000), int64(0)
			for _, st := range p.Stats() {
				least, most = min(least, st.Attempts), max(most, st.Attempts)
			}
			if most-least > 1 {
				t.Errorf("one shape had %d turns, another %d", most, least)
			}
		}
		time.Sleep(10 * time.Second)
		if most := w.record(); most != 2 || len(w.alive()) != 300 {
			t.Errorf("%d at once, %d boxes", most, len(w.alive()))
		}
	})
}

func TestAShapeWhoseBoxesHangDoesNotHoldUpAnother(t *testing.T) {
	inPool(t, func(_ *world, c *Config) { c.CheckTimeout = time.Hour }, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 1)
		time.Sleep(5 * time.Second)
		w.set(func() { w.boxes[0].hangs, w.takes = true, 20*time.Second })
		for _, name := range []string{"c", "a", "b"} { // c makes one, and a and b stand in line
			if err := p.Resize(shape(name), 2); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		time.Sleep(15 * time.Second) // a's keeper looks at its box, and does not come back
		w.set(func() { w.takes = time.Second })
		time.Sleep(time.Minute)
		for _, st := range p.Stats() {
			if st.Shape == shape("b") && st.Ready+st.Checking != 2 {
				t.Errorf("%+v", st)
			}
		}
	})
}

func TestDrainEndsWhatIsWarmAndLeavesWhatIsLeased(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 4)
		l := lease(t, p)
		if err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := w.alive(); len(a) != 1 || box.Lasting(a[0]) != l.Box {
			t.Errorf("%d boxes alive", len(a))
		}
		end(t, l)
		fill(t, w, p, 2) // the pool goes on
	})
}

func TestABoxThatCannotBeDestroyedIsTriedAgainAndNotLeased(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 1)
		b := w.alive()[0]
		w.set(func() { b.clings, b.sick = 5, errors.New("ill") })
		time.Sleep(2 * time.Minute)
		if st := rests(t, w, p); st.Stuck != 5 || b.destroyed != 1 || st.Ready != 1 {
			t.Errorf("%+v, destroyed %d times", st, b.destroyed)
		}
		l := lease(t, p)
		w.set(func() { l.Box.(*fakeBox).clings = 1 })
		if err := l.End(t.Context()); err == nil {
			t.Error("a box that cannot be destroyed was said to be")
		}
		end(t, l)
	})
}

func TestCloseSaysWhatItCouldNotDestroy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p, err := New(w.config())
		if err != nil {
			t.Fatal(err)
		}
		fill(t, w, p, 2)
		w.set(func() { w.boxes[0].clings = 1 << 30 })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := p.Close(ctx); err == nil || w.boxes[1].destroyed != 1 {
			t.Errorf("%v; the other one was destroyed %d times", err, w.boxes[1].destroyed)
		}
	})
}

func TestABoxThatComesWithAnErrorOrTooLateIsDestroyed(t *testing.T) {
	inPool(t, func(w *world, _ *Config) { w.late, w.takes = true, time.Hour }, func(t *testing.T, w *world, p *Pool) {
		if err := p.Resize(shape("a"), 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if l, miss := p.Lease(t.Context(), shape("a")); l != nil || w.tried() < 5 {
			t.Errorf("%v, %q, %d made", l, miss, w.tried())
		}
	})
}

func TestAProbeOfWhichNobodyTellsIsTheOnlyOneForAWhile(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 5)
		for range 3 {
			if err := lease(t, p).Failed(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
		n := 0
		for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			if l, _ := p.Lease(t.Context(), shape("a")); l != nil {
				n++
				end(t, l)
			}
		}
		if n < 1 || n > 20 { // one in half of the first delay, at most
			t.Errorf("%d boxes of a poisoned shape in ten seconds", n)
		}
	})
}

func TestABoxWithoutAFingerprintIsNotLeased(t *testing.T) {
	inPool(t, func(w *world, _ *Config) { w.onMake = func(b *fakeBox) { b.content = "" } }, func(t *testing.T, w *world, p *Pool) {
		if err := p.Resize(shape("a"), 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if l, _ := p.Lease(t.Context(), shape("a")); l != nil || w.tried() < 3 || w.tried() > p.cfg.Attempts+1 {
			t.Errorf("%v after %d attempts", l, w.tried())
		}
	})
}

func TestNoBoxIsLeasedThatGotTooOldWhileTheKeeperWasBusy(t *testing.T) {
	inPool(t, func(_ *world, c *Config) { c.Age, c.MakeTimeout = time.Minute, time.Hour }, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 1)
		w.set(func() { w.takes = 10 * time.Minute })
		if err := p.Resize(shape("a"), 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if l, miss := p.Lease(t.Context(), shape("a")); l != nil || miss != MissLate {
			t.Errorf("%v, %q", l, miss)
		}
	})
}

func TestWhoLooksAtABoxWhenThePoolClosesDoesNotGetIt(t *testing.T) {
	for what, closes := range map[string]func(*Pool) error{
		"close":  func(p *Pool) error { return p.Close(context.Background()) },
		"resize": func(p *Pool) error { return p.Resize(shape("a"), 0) },
	} {
		t.Run(what, func(t *testing.T) {
			deaf := func(w *world, c *Config) { // a check that does not hear of the end
				c.Check = func(context.Context, box.Lasting) error { time.Sleep(w.asks); return nil }
				c.Print = func(context.Context, box.Lasting) (string, error) { return "x", nil }
			}
			inPool(t, deaf, func(t *testing.T, w *world, p *Pool) {
				fill(t, w, p, 1)
				w.asks = time.Second
				var all sync.WaitGroup
				all.Go(func() {
					if l, miss := p.Lease(t.Context(), shape("a")); l != nil || miss != MissClosed && miss != MissShape {
						t.Errorf("%v, %q", l, miss)
					}
				})
				time.Sleep(500 * time.Millisecond)
				if err := closes(p); err != nil {
					t.Error(err)
				}
				all.Wait()
			})
		})
	}
}

func TestCloseDoesNotWaitForACheckThatHangs(t *testing.T) {
	inPool(t, nil, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 1)
		w.set(func() { w.boxes[0].hangs = true })
		var all sync.WaitGroup
		all.Go(func() {
			if l, miss := p.Lease(t.Context(), shape("a")); l != nil || miss != MissClosed {
				t.Errorf("%v, %q", l, miss)
			}
		})
		synctest.Wait()
		start := time.Now()
		if err := p.Close(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		all.Wait()
	})
}

func TestAPanicCostsOneBoxAndNotThePool(t *testing.T) {
	inPool(t, func(w *world, c *Config) {
		c.Wait = 0
		n := 0
		c.Make = func(ctx context.Context, s Shape) (box.Lasting, error) {
			if n++; n == 1 {
				panic("making")
			}
			return w.make(ctx, s)
		}
		c.Check = func(ctx context.Context, l box.Lasting) error {
			if l.(*fakeBox).content == "panic" {
				panic("checking")
			}
			return w.check(ctx, l)
		}
	}, func(t *testing.T, w *world, p *Pool) {
		fill(t, w, p, 4)
		bad := w.alive()[0]
		w.set(func() { bad.content = "panic" })
		if l, miss := p.Lease(t.Context(), shape("a")); l != nil || miss != MissBad {
			t.Errorf("%v, %q", l, miss)
		}
		end(t, lease(t, p))
		if st := stat(t, p); st.MakeFailed != 1 || st.Unhealthy != 1 || bad.destroyed != 1 {
			t.Errorf("%+v, destroyed %d times", st.Counts, bad.destroyed)
		}
	})
}

func TestCloseDuringEverything(t *testing.T) {
	for i := range 100 {
		inPool(t, func(w *world, c *Config) {
			c.Makes, c.Every, c.Age = 2, 200*time.Millisecond, 3*time.Second
			w.late = i%2 == 0
			w.onMake = func(b *fakeBox) {
				switch rand.N(8) {
				case 0:
					b.sick = errors.New("ill")
				case 1:
					b.clings = 1
				case 2:
					b.hangs = true
				}
			}
		}, func(t *testing.T, w *world, p *Pool) {
			s := &story{}
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					for p.Resize(shape("b"), rand.N(4)) == nil && p.Resize(shape("a"), 1+rand.N(6)) == nil {
						l, miss := p.Lease(t.Context(), shape("a"))
						if miss == MissClosed {
							return
						}
						time.Sleep(rand.N(200 * time.Millisecond))
						if l == nil {
							continue
						}
						s.mu.Lock()
						s.leases = append(s.leases, l)
						s.mu.Unlock()
						err := errors.New("not used")
						if rand.N(3) > 0 {
							l.Worked()
							err = l.End(t.Context())
						} else if err = l.Failed(t.Context(), err); err == nil {
							p.Stats()
						}
						if err != nil {
							end(t, l) // a second attempt does it
						}
					}
				})
			}
			time.Sleep(rand.N(5 * time.Second))
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
			all.Wait()
			s.distinct(t)
		})
	}
}
