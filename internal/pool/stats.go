package pool

import "time"

// Counts are what happened to a shape's boxes since it was first kept.
type Counts struct {
	Attempts   int64 // to make one
	Made       int64
	MakeFailed int64 // could not be made
	Leased     int64
	Worked     int64 // reported by holders
	Failed     int64 // reported by holders
	Unhealthy  int64 // did not pass a check
	Changed    int64 // were not as they were made
	Aged       int64 // were too old
	Surplus    int64 // were too many, or of a poisoned batch
	Stuck      int64 // attempts to destroy one that failed
}

// Stat is a shape's state. It names no box.
type Stat struct {
	Shape    Shape
	Want     int
	Ready    int
	Making   int
	Checking int
	Ending   int
	Waiting  int            // callers
	Held     time.Duration  // until the next attempt; 0 = nothing holds it up
	Poisoned bool           // none is leased
	Error    string         // the last one
	Misses   map[Miss]int64 // requests that got none
	Counts
}

// Stats tells of all shapes, in no order.
func (p *Pool) Stats() []Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var out []Stat
	for shape, s := range p.shelves {
		st := Stat{
			Shape: shape, Want: s.size, Waiting: s.waiting, Held: s.breaker.free(now).Sub(now),
			Poisoned: s.breaker.poisoned(now), Error: s.err, Misses: map[Miss]int64{}, Counts: s.counts,
		}
		for m, n := range s.misses {
			st.Misses[m] = n
		}
		for _, b := range s.slots {
			switch b.phase() {
			case ready:
				st.Ready++
			case making:
				st.Making++
			case checking:
				st.Checking++
			case ending:
				st.Ending++
			}
		}
		out = append(out, st)
	}
	return out
}
