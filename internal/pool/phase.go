package pool

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// phase is where a pooled box is in its life.
type phase string

const (
	making   phase = "making"   // there may be something on the host, and nobody holds it yet
	ready    phase = "ready"    // may be leased
	checking phase = "checking" // one goroutine looks at it, and nobody else may
	leased   phase = "leased"   // somebody's; the way back does not exist
	ending   phase = "ending"   // to be destroyed, as often as it takes
	gone     phase = "gone"
)

// changes is the table of what may follow what. There is no way from leased to
// ready: that line would be the whole difference between a pool and a leak.
func changes() map[phase][]phase {
	return map[phase][]phase{
		making:   {checking, ending, gone},
		ready:    {checking, ending},
		checking: {ready, leased, ending},
		leased:   {ending},
		ending:   {gone},
		gone:     {},
	}
}

// slot is one box of the pool. Whoever wins a change of its phase owns what the
// new phase permits; the other fields are guarded by the pool's lock, except
// box and print, which do not change after the slot was ready.
type slot struct {
	state atomic.Value // phase
	box   box.Lasting
	print string

	stale   time.Time // to be replaced, when there is time
	expires time.Time // not leased any more
	next    time.Time // the next check, or the next attempt to destroy it
	tries   int       // attempts to destroy it
}

func newSlot() *slot {
	b := &slot{}
	b.state.Store(making)
	return b
}

func (b *slot) phase() phase { return b.state.Load().(phase) }

// become changes the phase from one to another, and reports false if the table
// forbids it or if another goroutine was first: of any number, one wins.
func (b *slot) become(from, to phase) bool {
	return slices.Contains(changes()[from], to) && b.state.CompareAndSwap(from, to)
}
