package tenant

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func take(t *testing.T, turns *Turns, tenant string) (done func()) {
	t.Helper()
	done, err := turns.Take(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// Whoever keeps all that it may have, for ever, does not make another wait.
func TestATenantThatKeepsItsTurnsLeavesOthersSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(TurnRules{All: 3, Each: 2, Line: 9})
		take(t, turns, "a")
		take(t, turns, "a")
		var third bool
		go func() {
			done, err := turns.Take(t.Context(), "a")
			if third = err == nil; third {
				done()
			}
		}()
		synctest.Wait()
		if third {
			t.Fatal("a tenant has more than it may")
		}
		for range 3 { // behind a line that does not move
			take(t, turns, "b")()
		}
		if third {
			t.Error("a tenant has more than it may, since another came")
		}
	})
}

func TestLinesOfTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(TurnRules{All: 1, Each: 1, Line: 9})
		first := take(t, turns, "a")
		var mu sync.Mutex
		var order []string
		for _, tenant := range []string{"a", "a", "a", "b", "c"} {
			go func() {
				done := take(t, turns, tenant)
				mu.Lock()
				order = append(order, tenant)
				mu.Unlock()
				done()
				done() // once is enough
			}()
			synctest.Wait()
		}
		first()
		synctest.Wait()
		if !slices.Equal(order, []string{"a", "b", "c", "a", "a"}) {
			t.Error(order)
		}
		if turns.free != 1 || len(turns.has) != 0 || len(turns.lines.of) != 0 || len(turns.lines.order) != 0 {
			t.Errorf("left: %+v", turns)
		}
	})
}

func TestALineForTurnsIsShortAndCanBeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(TurnRules{All: 1, Each: 1, Line: 2})
		held := take(t, turns, "a")
		ctx, leave := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := turns.Take(ctx, "a")
				errs <- err
			}()
		}
		synctest.Wait()
		if _, err := turns.Take(t.Context(), "a"); box.KindOf(err) != box.Exhausted {
			t.Errorf("a third in a line for two: %v", err)
		}
		leave()
		for range 2 {
			if err := <-errs; err != context.Canceled {
				t.Error(err)
			}
		}
		held()
		take(t, turns, "b")()
		take(t, turns, "a")()
		if turns.free != 1 || len(turns.has) != 0 || len(turns.lines.of) != 0 || len(turns.lines.order) != 0 {
			t.Errorf("left: %+v", turns)
		}
	})
}

// As many tenants as there are turns, and more, keep theirs for as long as they can:
// another one waits behind one step of each, and not behind their lines.
func TestAnotherTenantWaitsForOneStepOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step, all = 20 * time.Second, 3
		turns := NewTurns(TurnRules{All: all, Each: 2, Line: 64})
		for _, tenant := range []string{"a", "b", "c", "d", "e", "f"} {
			for range 10 {
				go func() {
					done, err := turns.Take(t.Context(), tenant)
					if err == nil {
						time.Sleep(step)
						done()
					}
				}()
			}
		}
		synctest.Wait()
		begun := time.Now()
		take(t, turns, "another")()
		if waited := time.Since(begun); waited < step || waited > (6/all+1)*step {
			t.Errorf("it waited for %v", waited)
		}
		time.Sleep(time.Hour) // until all are done
	})
}
