package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func one() Amounts { return Amounts{Boxes: 1, MilliCPU: 1000, Memory: 1 << 20} }

func enter(t *testing.T, g *Gate, tenant string) *Pass {
	t.Helper()
	p, err := g.Enter(t.Context(), tenant, one(), false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAShareIsUsedUpAndGivenBack(t *testing.T) {
	for what, share := range map[string]Amounts{"boxes": {Boxes: 2}, "cpu": {MilliCPU: 2500}, "memory": {Memory: 2 << 20}} {
		t.Run(what, func(t *testing.T) {
			g := NewGate(Rules{Share: share, Starts: 9, Line: 9, Wait: time.Minute})
			a := enter(t, g, "a")
			enter(t, g, "a")
			_, err := g.Enter(t.Context(), "a", one(), false)
			be, _ := errors.AsType[*box.Error](err)
			if box.KindOf(err) != box.Exhausted || be.Retry <= 0 {
				t.Fatalf("a third: %v", err)
			}
			enter(t, g, "b") // another's share is its own
			a.Release()
			a.Release() // once is enough
			enter(t, g, "a")
			if _, err := g.Enter(t.Context(), "a", one(), false); err == nil {
				t.Error("giving back twice gave two")
			}
		})
	}
}

func TestWhatNoShareCanHoldIsRefusedAtOnceEvenForThePatient(t *testing.T) {
	g := NewGate(Rules{Share: Amounts{Memory: 1}, Starts: 1, Line: 1, Wait: time.Hour})
	if _, err := g.Enter(t.Context(), "a", one(), true); box.KindOf(err) != box.Exhausted {
		t.Error(err)
	}
}

func TestOneTenantsStormDelaysAnotherByOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Rules{Starts: 1, Line: 100, Wait: time.Hour})
		first := enter(t, g, "storm")
		var mu sync.Mutex
		var order []string
		wait := func(tenant string) {
			go func() {
				p, err := g.Enter(context.Background(), tenant, one(), false)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, tenant)
				mu.Unlock()
				time.Sleep(time.Second)
				p.Release()
			}()
			synctest.Wait()
		}
		for range 50 {
			wait("storm")
		}
		wait("calm")
		if n := g.Waiting(); n != 51 {
			t.Errorf("%d wait", n)
		}
		first.Started()
		time.Sleep(time.Hour / 2)
		if len(order) != 51 || order[1] != "calm" && order[0] != "calm" {
			t.Errorf("%d served, in the order %v", len(order), order[:min(len(order), 5)])
		}
	})
}

func TestAFullLineIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Rules{Starts: 1, Line: 2, Wait: time.Minute})
		p := enter(t, g, "a")
		for range 2 {
			go func() { _, _ = g.Enter(t.Context(), "a", one(), true) }()
		}
		synctest.Wait()
		if _, err := g.Enter(t.Context(), "a", one(), true); box.KindOf(err) != box.Exhausted {
			t.Error(err)
		}
		p.Release()
		synctest.Wait()
	})
}

func TestThePatientWaitForTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Rules{Share: Amounts{Boxes: 1}, Starts: 9, Line: 9, Wait: time.Minute})
		p := enter(t, g, "a")
		go func() { time.Sleep(10 * time.Second); p.Release() }()
		begun := time.Now()
		if _, err := g.Enter(t.Context(), "a", one(), true); err != nil || time.Since(begun) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		// Nobody gives the next one any.
		if _, err := g.Enter(t.Context(), "a", one(), true); box.KindOf(err) != box.Exhausted {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.Enter(ctx, "a", one(), true); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := g.Waiting(); n != 0 {
			t.Errorf("%d wait who have left", n)
		}
	})
}

func TestWhoeverLeavesTheLineHoldsUpNobodyBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Rules{Share: Amounts{Boxes: 3}, Starts: 9, Line: 9, Wait: time.Hour})
		enter(t, g, "a")
		ctx, leave := context.WithCancel(t.Context())
		go g.Enter(ctx, "a", Amounts{Boxes: 3}, true)
		synctest.Wait()
		go func() { time.Sleep(time.Second); leave() }()
		begun := time.Now()
		if _, err := g.Enter(t.Context(), "a", one(), true); err != nil || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestNothingIsLostUnderAStorm(t *testing.T) {
	g := NewGate(Rules{Share: Amounts{Boxes: 3}, Starts: 2, Line: 1000, Wait: time.Minute})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%7)*time.Millisecond+time.Microsecond)
			defer cancel()
			if p, err := g.Enter(ctx, fmt.Sprint(i%3), one(), true); err == nil {
				p.Started()
				p.Release()
			}
		})
	}
	wg.Wait()
	if g.starts != 2 || len(g.used)+len(g.lines.of)+len(g.lines.order) != 0 {
		t.Errorf("left: %d starts, %v, %v, %v", g.starts, g.used, g.lines.of, g.lines.order)
	}
}

// What is in a copy can make its start take half a minute.
func TestATenantWhoseStartsHangLeavesOthersOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Rules{Starts: 4, Line: 100, Wait: time.Hour})
		var hang []*Pass
		for range 3 {
			hang = append(hang, enter(t, g, "hangs"))
		}
		over := make(chan *Pass)
		go func() {
			p, err := g.Enter(t.Context(), "hangs", one(), false)
			if err != nil {
				t.Error(err)
			}
			over <- p
		}()
		synctest.Wait()
		if g.Waiting() != 1 {
			t.Error("one tenant has all starts")
		}
		for range 3 {
			enter(t, g, "other").Started()
		}
		hang[0].Started()
		(<-over).Started()
		for _, p := range hang {
			p.Started()
		}
		if g.starts != 4 || len(g.making) != 0 {
			t.Errorf("%d starts are free, and %v are said to be made", g.starts, g.making)
		}
	})
}
