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
func (w *world) round(point, tier string, reuse, netted bool, r *rand.Rand) error {
	k, err := w.get(tier, reuse, netted)
	if err != nil {
		return err
	}
	if ofGateway(point) {
		w.killGateways() // the next one passes it
	}
	steps := w.steps()
	switch {
	case strings.Contains(point, "volume"):
		steps = []func(*known, *rand.Rand) error{w.volume}
	case ofNetwork(point):
		steps = []func(*known, *rand.Rand) error{w.change, w.reach}
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

// moment is one at which somebody is killed.
type moment struct{ point, victim string }

// moments are all that have a name. At those of networks, or some of them, the gateway
// is killed, too, while its daemon goes on.
func moments() (all []moment) {
	for _, p := range fault.Points() {
		all = append(all, moment{p, fault.Self})
		if gatewayDies(p) {
			all = append(all, moment{p, fault.Gateway})
		}
	}
	return all
}

// ofNetwork reports whether a moment is one of boxes with a network alone.
func ofNetwork(point string) bool {
	return strings.HasPrefix(point, "keeper.") || strings.Contains(point, "link-") || strings.Contains(point, "network-")
}

// ofGateway reports whether a moment is passed when a gateway comes in the place of
// another one.
func ofGateway(point string) bool {
	return point == "keeper.gateway-started" || point == "keeper.attached-again"
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
		if _, err := w.get(tier, false, true); err != nil {
			t.Fatal(err)
		}
	}
	w.d.Kill()
	for n := 1; n <= eachPoint; n++ {
		for i, m := range moments() {
			if u != harness.Root && (m.point == "frame.limited" || m.point == "process.store-made" || strings.Contains(m.point, "volume")) {
				continue // an ordinary user has none of them here
			}
			tier := tierOf(m.point, i+n)
			switch {
			case m.point == "engine.fork-copied" && w.cannotFork():
				t.Logf("NOT TESTED: %s: boxes cannot be forked here", m.point)
				continue
			case ofNetwork(m.point) && w.farm == nil:
				t.Logf("NOT TESTED: %s: a world in network namespaces takes root", m.point)
				continue
			}
			passage := n
			switch {
			case strings.HasPrefix(m.point, "frame.drop"), strings.HasPrefix(m.point, "engine.recover"):
				passage = 1                                                                 // of a start, which has no more
				w.kill(t, moment{"frame.remembered", fault.Self}, 1, tier, false, false, r) // leaves half a box
			case m.point == "keeper.attached", m.point == "engine.link-taken":
				passage += 2 // after those of the boxes that stay
			}
			// Boxes that are nobody's yet are made, die and are left behind, too.
			reuse := leased(m.point) || (i/2+n)%2 == 0 && !strings.HasPrefix(m.point, "engine.create")
			w.kill(t, m, passage, tier, reuse, ofNetwork(m.point) || mixNetworks && (i/4+n)%2 == 0, r)
			w.disarm()
			w.d.Start()
			w.connect = mixNetworks || ofNetwork(m.point)
			w.check()
			if t.Failed() {
				t.Fatalf("after %v, passage %d, of tier %s\n%s", m, n, tier, w.d.Log())
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
	w.connect = true
	w.check()
	t.Logf("kills at each moment: %v; %d boxes were warm; %d things arrived that boxes may reach", w.kills, w.warm, w.arrivals)
}

// kill starts a daemon that dies at the n-th passage of a moment, or whose gateway does
// while it goes on.
func (w *world) kill(t *testing.T, m moment, n int, tier string, reuse, netted bool, r *rand.Rand) {
	t.Helper()
	point := m.point
	w.arm(m, n)
	rounds := 0
	for up := w.d.TryStart(); up && w.passed(point) < n && rounds < 20; rounds++ {
		err := w.round(point, tier, reuse, netted, r)
		if err != nil && !strings.Contains(err.Error(), `"unavailable"`) && (m.victim != fault.Self || w.passed(point) < n) {
			t.Fatalf("%v: before passage %d: %v\n%s", m, n, err, w.d.Log())
		} else if err != nil {
			t.Logf("%v: another round after %v", m, err) // it is dead, or the host is busy
		}
	}
	if got := w.passed(point); got < n { // others may pass it while it dies
		t.Fatalf("%s was passed %d times, not %d\n%s", point, got, n, w.d.Log())
	}
	w.kills[m]++
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
		t.Logf("%d kills, and %d of gateways; %d boxes were warm; %d things arrived that boxes may reach", randomKills/len(users), w.gateways, w.warm, w.arrivals)
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
	r := rand.New(rand.NewPCG(s, 100))
	for n := r.IntN(4); n > 0 && w.farm != nil; n-- { // the last one is with the daemon, or before it
		part := time.Duration(r.Int64N(int64(d)/int64(n) + 1))
		time.Sleep(part)
		d -= part
		w.killGateways()
	}
	if r.IntN(2) == 0 {
		time.Sleep(d)
	}
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
		_, err := w.get([]string{"gvisor", "process"}[r.IntN(2)], r.IntN(2) == 0, r.IntN(2) == 0)
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
