package gvisor

import (
	"errors"
	"testing"
	"time"
)

// A host that has no time gives a program's memory back late: nothing else is to be
// ended for it meanwhile. What gives nothing back is not waited for.
func TestMemoryOfAProgramThatIsEndedIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		left  func(after time.Duration) (int64, error)
		lives time.Duration // how long the program does
		want  bool
		least time.Duration // how long it is waited for
	}{
		"at once":             {func(time.Duration) (int64, error) { return 0, nil }, 0, true, 0},
		"dies slowly":         {func(d time.Duration) (int64, error) { return int64(d/time.Millisecond) - 800, nil }, 800 * time.Millisecond, true, 700 * time.Millisecond},
		"dies and then frees": {func(d time.Duration) (int64, error) { return int64(d/(700*time.Millisecond)) - 1, nil }, 600 * time.Millisecond, true, 600 * time.Millisecond},
		"frees slowly":        {func(d time.Duration) (int64, error) { return int64(d/(100*time.Millisecond)) - 8, nil }, 0, true, 700 * time.Millisecond},
		"frees nothing":       {func(time.Duration) (int64, error) { return -1, nil }, 0, false, memoryBack},
		"never ends":          {func(time.Duration) (int64, error) { return -1, nil }, time.Hour, false, memoryLate},
		"no account":          {func(time.Duration) (int64, error) { return -1, errors.New("no account") }, time.Hour, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			got := freed(func() (int64, error) { return c.left(time.Since(begun)) }, func() bool { return time.Since(begun) < c.lives })
			if took := time.Since(begun); got != c.want || took < c.least {
				t.Errorf("freed: %v, after %v; want %v, after %v at least", got, took, c.want, c.least)
			}
		})
	}
}

// An agent that answers late is not asked twice, which would end one more program, and
// its answer counts.
func TestAnAgentThatIsAskedIsNotAskedAgainBeforeItAnswers(t *testing.T) {
	asked, counted := 0, 0
	k := newMemoryKeeper(1, func() { counted++ })
	ask := func() {
		t.Helper()
		if !k.ask(func() error { asked++; return nil }) {
			t.Error("it cannot be asked")
		}
	}
	ask()
	ask()
	k.answeredLate()
	if asked != 1 || counted != 0 {
		t.Errorf("asked %d times, %d answers", asked, counted)
	}
	k.killed <- 7
	k.answeredLate()
	k.answeredLate()
	ask()
	if asked != 2 || counted != 1 {
		t.Errorf("after an answer: asked %d times, %d answers", asked, counted)
	}
	k.asked = time.Now().Add(-memoryLate - time.Second) // it finds nobody, and says nothing
	ask()
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	if k = newMemoryKeeper(1, nil); k.ask(func() error { return errors.New("gone") }) {
		t.Error("what cannot be asked was")
	}
}
