package tenant

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

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
		if turns.free != 1 || len(turns.has) != 0 || len(turns.lines) != 0 || len(turns.order) != 0 {
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
		if turns.free != 1 || len(turns.has) != 0 || len(turns.lines) != 0 || len(turns.order) != 0 {
			t.Errorf("left: %+v", turns)
		}
	})
}
