package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func seed(t *testing.T) uint64 {
	n := uint64(time.Now().UnixNano())
	if s := os.Getenv("SUNABA_CRASH_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SUNABA_CRASH_SEED=%d", n)
	return n
}

func newRand(t *testing.T) *rand.Rand { return rand.New(rand.NewPCG(seed(t), 2)) }

// round does what passes every moment of a daemon's, as long as it lives.
func (w *world) round(point, tier string, reuse bool, r *rand.Rand) error {
	k, err := w.get(tier, reuse)
	if err != nil {
		return err
	}
	steps := w.steps()
	switch {
	case strings.Contains(point, "volume"):
		steps = []func(*known, *rand.Rand) error{w.volume}
	case leased(point): // the first one is cold, and makes the daemon keep one for the next
		steps = steps[:1]
	}
	for _, do := range steps {
		if err := do(k, r); err != nil {
			return err
		}
	}
	return w.destroy(k)
}

// cannotFork asks a daemon.
func (w *world) cannotFork() bool {
	w.d.Start()
	defer w.d.Kill()
	status, _ := w.call("POST", path(w.boxes[0])+"/fork", map[string]any{"count": 1, "metadata": map[string]any{"fork": "yes"}}, nil)
	return status == http.StatusNotImplemented
}

// leased reports whether a moment is one of warm boxes alone.
func leased(point string) bool { return strings.HasPrefix(point, "engine.lease") }

// tierOf is the tier in which a moment is passed.
func tierOf(point string, n int) string {
	for _, tier := range []string{"process", "gvisor"} {
		if strings.HasPrefix(point, tier+".") {
			return tier
		}
	}
	switch {
	case point == "engine.fork-copied":
		return "gvisor" // no other can
	case strings.Contains(point, "snapshot"):
		return "process"
	}
	return []string{"gvisor", "process"}[n%2]
}

func TestTheDaemonIsKilledAtEachMoment(t *testing.T) {
	u := harness.Users()[0]
	w := newWorld(t, u)
	r := rand.New(rand.NewPCG(seed(t), 0))
	for _, tier := range []string{"gvisor", "process"} { // those that stay
		if _, err := w.create(tier); err != nil {
			t.Fatal(err)
		}
	}
	w.d.Kill()
	for n := 1; n <= eachPoint; n++ {
		for i, point := range fault.Points() {
			if u != harness.Root && (point == "frame.limited" || point == "process.store-made" || strings.Contains(point, "volume")) {
				continue // an ordinary user has none of them here
			}
			tier := tierOf(point, i+n)
			if point == "engine.fork-copied" && w.cannotFork() {
				t.Logf("NOT TESTED: %s: boxes cannot be forked here", point)
				continue
			}
			passage := n
			if strings.HasPrefix(point, "frame.drop") || strings.HasPrefix(point, "engine.recover") {
				passage = 1                                      // of a start, which has no more
				w.kill(t, "frame.remembered", 1, tier, false, r) // leaves half a box
			}
			// Boxes that are nobody's yet are made, die and are left behind, too.
			reuse := leased(point) || (i/2+n)%2 == 0 && !strings.HasPrefix(point, "engine.create")
			w.kill(t, point, passage, tier, reuse, r)
			w.disarm()
			w.d.Start()
			w.check()
			if t.Failed() {
				t.Fatalf("after %s, passage %d, of tier %s\n%s", point, n, tier, w.d.Log())
			}
			for _, k := range w.boxes { // something goes on while it is dead
				if err := errors.Join(w.background(k, r), w.typeIn(k, nil)); err != nil {
					t.Fatal(err)
				}
			}
			for len(w.boxes) > 2 {
				if err := w.destroy(w.boxes[2]); err != nil {
					t.Fatal(err)
				}
			}
			w.d.Kill()
		}
	}
	w.d.Start()
	w.check()
	t.Logf("kills at each moment: %v; %d boxes were warm", w.kills, w.warm)
}

// kill starts a daemon that dies at the n-th passage of a moment.
func (w *world) kill(t *testing.T, point string, n int, tier string, reuse bool, r *rand.Rand) {
	t.Helper()
	w.arm(point, n)
	rounds := 0
	for up := w.d.TryStart(); up && w.passed(point) < n && rounds < 20; rounds++ {
		if err := w.round(point, tier, reuse, r); err != nil && w.passed(point) < n {
			t.Fatalf("%s: before passage %d: %v\n%s", point, n, err, w.d.Log())
		}
	}
	if got := w.passed(point); got < n { // others may pass it while it dies
		t.Fatalf("%s was passed %d times, not %d\n%s", point, got, n, w.d.Log())
	}
	w.kills[point]++
	w.d.Kill()
}

func TestTheDaemonIsKilledAtAnyMoment(t *testing.T) {
	users := harness.Users()
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		w := newWorld(t, u)
		s := seed(t)
		r := rand.New(rand.NewPCG(s, 1))
		for n := range randomKills / len(users) {
			w.pending = append(w.pending, w.busy(time.Duration(r.IntN(1200))*time.Millisecond, s+uint64(n))...)
			if n%4 == 3 { // twice in a row, the second while it starts
				w.d.TryStartFor(time.Duration(r.IntN(300)) * time.Millisecond)
				w.d.Kill()
			}
			w.d.Start()
			w.check()
			if t.Failed() {
				t.Fatalf("after kill %d\n%s", n, w.d.Log())
			}
			for len(w.boxes) > 4 {
				if err := w.destroy(w.boxes[r.IntN(len(w.boxes))]); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Logf("%d kills; %d boxes were warm", randomKills/len(users), w.warm)
	})
}

// busy has callers work for a while, and kills the daemon among it.
func (w *world) busy(d time.Duration, s uint64) []*wanted {
	var callers sync.WaitGroup
	for n := range 3 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(s, uint64(n)))
			for w.work(r) == nil {
			}
		})
	}
	time.Sleep(d)
	w.d.Kill()
	callers.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending
	w.pending = nil
	return p
}

var errDead = errors.New("no answer") // the caller stops

// work does one thing with some box that nobody else has.
func (w *world) work(r *rand.Rand) error {
	w.mu.Lock()
	var k *known
	if len(w.boxes) > 0 {
		k = w.boxes[r.IntN(len(w.boxes))]
	}
	w.mu.Unlock()
	if k == nil || r.IntN(4) == 0 {
		_, err := w.get([]string{"gvisor", "process"}[r.IntN(2)], r.IntN(2) == 0)
		return err
	}
	if !k.busy.TryLock() {
		return nil
	}
	defer k.busy.Unlock()
	if w.isGone(k) {
		return nil
	}
	if r.IntN(8) == 0 {
		return w.destroy(k)
	}
	steps := w.steps()
	if err := steps[r.IntN(len(steps))](k, r); err != nil {
		return fmt.Errorf("%w: %w", errDead, err)
	}
	return nil
}

func (w *world) isGone(k *known) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone[k.id]
}
