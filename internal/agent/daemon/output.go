package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/agent/clock"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// output is what a process has written, the tail of it, and who follows.
//
// A process waits rather than lose a byte that somebody did not get. What a
// follower got is known only as far as it was sent: what is on the way, in the
// stream's window and in a message at each end, may be lost when the stream is
// cut. So all but ahead bytes of what is kept stay behind the slowest follower,
// for its return. That is enough as long as the host's window for a stream is no
// larger than [window]. A follower that was cut off keeps its place for leaseTime.
type output struct {
	mu        sync.Mutex
	rings     [2]ring
	followers map[*follower]struct{}
	leases    []lease
	ended     bool          // the process: nothing that writes now is worth waiting for
	done      bool          // nothing more comes
	held      *atomic.Int64 // what all rings of living processes take; nil is not counted
	limit     uint64
	over      func() // called once, when more than limit was written; may be nil
	clock     *clock.Clock
}

const (
	stdout = 0
	stderr = 1

	leaseTime = 30 * time.Second
	leastWait = 10 * time.Millisecond // the clock may stand just before a lease's end
	minRing   = 512 << 10
	maxRing   = 4 << 20
	firstRing = 4 << 10
	// ahead is how far a process may get ahead of its slowest follower, beyond
	// what a pipe holds.
	ahead = 64 << 10
	// window is what a stream may have on the way to a follower, beside the message
	// that is being sent and the one that is being received.
	window = 256 << 10
	// most is how much is taken from a stream, and sent, at a time.
	most = 32 << 10

	maxFollowers = 64

	// maxHeld is what the rings of all living processes may take, in bytes. What
	// does not fit has rings of lowRing, and room for that much less on the way.
	maxHeld = 64 << 20
	lowRing = 128 << 10
)

// ring holds the bytes of a stream from start to end, by position.
type ring struct {
	buf        []byte // position p is at p % len(buf)
	size       int    // bound of len(buf), while the process lives
	start, end uint64
	room       chan struct{} // told when there may be room again
}

// lease keeps the place of a follower that was cut off: it has got something
// between low and high.
type lease struct {
	low, high [2]uint64
	until     time.Duration // of the clock
}

// follower is a reader of both streams.
type follower struct {
	wake chan struct{}
	from [2]uint64 // it asked from here on
	pos  [2]uint64 // and was sent all before this
	took bool      // the place of one that was cut off
	ctx  context.Context
}

// newOutput keeps so many bytes of each stream; if somebody is awaited, as if
// that one had read from the beginning and been cut off just now.
func newOutput(keep uint64, awaited bool, c *clock.Clock) *output {
	size := min(max(keep, minRing), maxRing)
	o := &output{followers: map[*follower]struct{}{}, clock: c}
	if awaited {
		o.leases = []lease{{until: c.Now() + leaseTime}}
	}
	for i := range o.rings {
		o.rings[i] = ring{size: int(size), room: make(chan struct{}, 1)}
	}
	return o
}

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (o *output) wakeFollowers() {
	for f := range o.followers {
		tell(f.wake)
	}
}

func (o *output) wakePumps() {
	for i := range o.rings {
		tell(o.rings[i].room)
	}
}

// behind is the first byte of a stream that a follower may still lack.
func (o *output) behind(f *follower, i int) uint64 {
	slack := uint64(o.rings[i].size - ahead)
	return max(f.from[i], f.pos[i]-min(slack, f.pos[i]))
}

// roomFor is how many bytes of a stream may be taken now, and when to ask again
// if it is none.
func (o *output) roomFor(i int, now time.Duration) (n int, again time.Duration) {
	r := &o.rings[i]
	if o.ended {
		return most, 0
	}
	kept, held := r.end, false
	for f := range o.followers {
		kept, held = min(kept, o.behind(f, i)), true
	}
	again = leaseTime
	live := o.leases[:0]
	for _, l := range o.leases {
		if left := l.until - now; left > 0 {
			live = append(live, l)
			kept, held, again = min(kept, l.low[i]), true, min(again, max(left, leastWait))
		}
	}
	o.leases = live
	if !held {
		return most, 0
	}
	return min(most, max(0, r.size-int(r.end-max(kept, r.start)))), again
}

// readInto takes what a descriptor has, as far as there is room, without
// waiting: EAGAIN if it has nothing, n = 0 at its end. No room is errNoRoom.
func (o *output) readInto(i, fd int, scratch []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	room, _ := o.roomFor(i, o.clock.Now())
	if room == 0 {
		return 0, errNoRoom
	}
	n, err := host.ReadToEnd(func() (int, error) {
		return retry(func() (int, error) { return unix.Read(fd, scratch[:room]) })
	})
	if n <= 0 || err != nil {
		return 0, err
	}
	data := scratch[:n]
	if o.limit > 0 { // what is beyond is not kept, nor counted
		left := o.limit - min(o.limit, o.rings[stdout].end+o.rings[stderr].end)
		if uint64(len(data)) > left {
			data = data[:left]
			if o.over != nil {
				o.over()
				o.over = nil
			}
		}
	}
	o.narrow(i, len(data))
	before := len(o.rings[i].buf)
	o.rings[i].append(data, o.ended)
	o.count(len(o.rings[i].buf) - before)
	o.wakeFollowers()
	return n, nil
}

// narrow keeps a ring as small as it is, if all rings together are large.
func (o *output) narrow(i, more int) {
	r := &o.rings[i]
	if o.held != nil && o.held.Load() > maxHeld && len(r.buf) >= lowRing && !o.ended && int(r.end-r.start)+more > len(r.buf) {
		r.size = len(r.buf)
	}
}

// count notes that rings take so much more.
func (o *output) count(more int) {
	if o.held != nil {
		o.held.Add(int64(more))
	}
}

// append adds data, in the place of the oldest bytes if there is none left. Once
// the process has ended nothing is lost: what is left to come is bounded.
func (r *ring) append(data []byte, grow bool) {
	need := int(r.end-r.start) + len(data)
	if need > len(r.buf) && (len(r.buf) < r.size || grow) {
		size := max(len(r.buf), firstRing)
		for size < need {
			size *= 2
		}
		if !grow {
			size = min(size, r.size)
		}
		r.resize(size)
	}
	if lost := need - len(r.buf); lost > 0 {
		r.start += uint64(lost)
	}
	for len(data) > 0 {
		n := copy(r.buf[int(r.end%uint64(len(r.buf))):], data)
		r.end += uint64(n)
		data = data[n:]
	}
}

func (r *ring) resize(size int) {
	old := *r
	r.buf = make([]byte, size)
	for p := old.start; p < old.end; {
		seg := old.at(p, size)
		for len(seg) > 0 {
			n := copy(r.buf[int(p%uint64(size)):], seg)
			p += uint64(n)
			seg = seg[n:]
		}
	}
}

// at is what is kept from a position on in one piece, at most n bytes.
func (r *ring) at(p uint64, n int) []byte {
	if p >= r.end {
		return nil
	}
	i := int(p % uint64(len(r.buf)))
	n = min(n, len(r.buf)-i, int(r.end-p))
	return r.buf[i : i+n]
}

// finish says that nothing more comes, and gives back memory that is not needed.
func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	o.count(-len(o.rings[stdout].buf) - len(o.rings[stderr].buf))
	for i := range o.rings {
		r := &o.rings[i]
		if kept := int(r.end - r.start); kept > r.size { // it came after the process's end
			kept = r.size
			if len(o.followers) == 0 && len(o.leases) == 0 {
				r.start = r.end - uint64(kept)
			}
		}
		if n := max(int(r.end-r.start), 1); n <= len(r.buf)/2 {
			r.resize(n)
		}
	}
	o.wakeFollowers()
}

// kept is how much memory it holds.
func (o *output) kept() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.rings[stdout].buf) + len(o.rings[stderr].buf)
}

// written is how many bytes each stream had.
func (o *output) written() (out, err uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rings[stdout].end, o.rings[stderr].end
}
