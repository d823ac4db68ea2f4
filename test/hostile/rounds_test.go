//go:build hostilelong

package hostile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

const (
	rounds   = 20 // how often everything is run
	together = 4  // boxes at once
)

// TestInAnyOrderAndTogether runs everything many times, each time in another
// order and with several boxes at once: a wall may stand only as long as nobody
// pushes at it from the other side. The cases of a file that share a box are
// shuffled, too.
func TestInAnyOrderAndTogether(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for round := range rounds {
		t.Run(fmt.Sprintf("round %d, seed %d", round, seed+uint64(round)), func(t *testing.T) {
			harness.NothingLeft(t)
			r := rand.New(rand.NewPCG(seed+uint64(round), 0))
			jobs := all(t, r)
			r.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
			at := make(chan struct{}, together)
			var done sync.WaitGroup
			for _, j := range jobs {
				at <- struct{}{}
				done.Add(1)
				go func() {
					defer func() { <-at; done.Done() }()
					t.Run(j.name, j.run)
				}()
			}
			done.Wait()
		})
	}
}

// job is what has one box for itself.
type job struct {
	name string
	run  func(t *testing.T)
}

func all(t *testing.T, r *rand.Rand) (jobs []job) {
	t.Helper()
	files := groups(t)
	for _, p := range places() {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			cases := shared(p, files[name])
			r.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
			if len(cases) > 0 {
				jobs = append(jobs, job{p.String() + ": " + name, func(t *testing.T) { batch(t, p, cases) }})
			}
			for _, c := range files[name] {
				if c.is("alone") && c.due(p.tier) {
					jobs = append(jobs, job{p.String() + ": " + c.Name, func(t *testing.T) { alone(t, p, c) }})
				}
			}
		}
		for _, c := range apiCases() {
			if c.run != nil {
				jobs = append(jobs, job{p.String() + ": " + c.id + " " + c.what, func(t *testing.T) { c.run(t, p) }})
			}
		}
	}
	return jobs
}
