// Package ledger is what a box has used up of its policy, and the names that it
// was told addresses for, in a file.
//
// The gateway is the one process that reads what hostile boxes send, so it must be
// expected to die. What a box may send in its whole life would begin anew with the
// next gateway, and a program that remembers an address would find that it leads
// nowhere. So both are kept where a kill does not reach: counts in pages of a file
// that the gateway has mapped, names in lines behind them. The file belongs to who
// keeps the gateway; the gateway has its descriptor, may not make it longer than
// [Size], and is the only one who believes what is in it.
//
// Whatever cannot be written down is refused: a box gets no more by filling the
// file, or the disk.
package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The file: slots of equal size, of which the first is the box's own, then lines.
// A slot is a key, bytes sent, bytes received, and a bucket's level and time.
const (
	slotSize = 64
	slots    = 1024
	counts   = slots * slotSize // bytes; mapped
	lines    = 4 << 20          // bytes at most

	// Size is how many bytes a ledger's file has at most.
	Size = counts + lines
)

// magic is the first slot's key in a file that is a ledger.
const magic = "sunaba ledger 1\n"

// ErrFull is for what finds no room any more.
var ErrFull = errors.New("cannot write it down: the box's ledger is full")

type key [16]byte

// digest stands for a name.
type digest [8]byte

// Ledger is one box's. It is safe for concurrent use. Two of one file must not be
// open at once.
type Ledger struct {
	mu    sync.Mutex
	file  *os.File // nil: names are not written down
	page  []byte   // the slots; nil once it is closed
	index map[key]int
	end   int64             // of the lines
	last  map[uint32]digest // the last name of each place
	now   func() time.Time
}

// Make gives an empty file the pages that counts are in, so that none of them is
// missing when the disk is full.
func Make(f *os.File) error {
	if err := unix.Fallocate(int(f.Fd()), 0, 0, counts); err != nil {
		return fmt.Errorf("cannot make room for a ledger: %w", err)
	}
	return nil
}

// New returns a ledger that ends with this process.
func New() (*Ledger, error) {
	page, err := unix.Mmap(-1, 0, counts, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("cannot make ledger: %w", err)
	}
	return &Ledger{page: page, index: map[key]int{}, now: time.Now}, nil
}

// Open takes over a file that Make has made, new or with what was written down
// before, also when it fails.
func Open(f *os.File) (*Ledger, []Name, error) {
	l, names, err := read(f)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("cannot open ledger: %w", err)
	}
	return l, names, nil
}

func read(f *os.File) (*Ledger, []Name, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if st.Size() < counts || st.Size() > Size {
		return nil, nil, fmt.Errorf("it has %d bytes", st.Size())
	}
	page, err := unix.Mmap(int(f.Fd()), 0, counts, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot map it: %w", err)
	}
	l := &Ledger{file: f, page: page, index: map[key]int{}, last: map[uint32]digest{}, now: time.Now}
	names, err := l.begin()
	if err != nil {
		return nil, nil, errors.Join(err, unix.Munmap(page))
	}
	return l, names, nil
}

// begin reads what is there.
func (l *Ledger) begin() ([]Name, error) {
	own := l.key(0)
	if own == (key{}) {
		copy(l.page, magic)
		own = key([]byte(magic))
	}
	if string(own[:]) != magic {
		return nil, errors.New("it is none")
	}
	for i := 1; i < slots; i++ {
		k := l.key(i)
		if k == (key{}) {
			break
		}
		l.index[k] = i
	}
	names, end, err := readNames(l.file)
	l.end = end
	for _, n := range names {
		l.last[n.Place] = digestOf(n.Name)
	}
	return names, err
}

func (l *Ledger) key(i int) key { return key(l.page[i*slotSize:]) }

// slot returns the number of what is called rule; "" is the box's own.
func (l *Ledger) slot(rule string) (int, error) {
	if l.page == nil {
		return 0, os.ErrClosed
	}
	if rule == "" {
		return 0, nil
	}
	sum := sha256.Sum256([]byte(rule))
	k := key(sum[:])
	if i, ok := l.index[k]; ok {
		return i, nil
	}
	i := len(l.index) + 1
	if i >= slots {
		return 0, ErrFull
	}
	copy(l.page[i*slotSize:], k[:])
	l.index[k] = i
	return i, nil
}

// Offsets in a slot.
const (
	atSent     = 16
	atReceived = 24
	atLevel    = 32
	atTime     = 40
)

func (l *Ledger) get(slot, at int) uint64 {
	return binary.NativeEndian.Uint64(l.page[slot*slotSize+at:])
}

func (l *Ledger) put(slot, at int, v uint64) {
	binary.NativeEndian.PutUint64(l.page[slot*slotSize+at:], v)
}

// Bound is what may be sent and received in all under a rule, the box's own if it is
// "", in bytes; 0 is no bound.
type Bound struct {
	Rule           string
	Sent, Received int64
}

// Spend notes bytes that are about to be sent and received under rule, the box's
// own if it is "", and reports whether that is within the limits, of which 0 is
// none. What is not, is not noted.
func (l *Ledger) Spend(rule string, sent, received, mostSent, mostReceived int64) bool {
	return l.SpendAll(sent, received, Bound{rule, mostSent, mostReceived}) < 0
}

// SpendAll is Spend under several rules at once: what is not within one of them is
// noted under none. It returns the number of the first such one, or -1.
func (l *Ledger) SpendAll(sent, received int64, bounds ...Bound) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, b := range bounds {
		if b.free() {
			continue
		}
		n, err := l.slot(b.Rule)
		if err != nil || b.Sent > 0 && int64(l.get(n, atSent))+sent > b.Sent || b.Received > 0 && int64(l.get(n, atReceived))+received > b.Received {
			return i
		}
	}
	for i, b := range bounds {
		if b.free() {
			continue
		}
		n, err := l.slot(b.Rule)
		if err != nil {
			return i
		}
		l.put(n, atSent, l.get(n, atSent)+uint64(sent))
		l.put(n, atReceived, l.get(n, atReceived)+uint64(received))
	}
	return -1
}

// free reports whether nothing is noted: but for the box's own, only what has a bound is.
func (b Bound) free() bool { return b.Rule != "" && b.Sent == 0 && b.Received == 0 }

// Spent returns the bytes that were noted under rule.
func (l *Ledger) Spent(rule string) (sent, received int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := l.slot(rule)
	if err != nil {
		return 0, 0
	}
	return int64(l.get(i, atSent)), int64(l.get(i, atReceived))
}

// Take takes one of count tokens, which come back within per, from the bucket of
// rule, the box's own if it is "", and reports whether there was one. A count of 0
// is no limit.
func (l *Ledger) Take(rule string, count int, per time.Duration) bool {
	if count == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := l.slot(rule)
	if err != nil {
		return false
	}
	// The wall clock, since no other is the same for the next gateway. If it is set
	// back, tokens come back from then on.
	now, was := l.now(), time.Unix(0, int64(l.get(i, atTime)))
	gone := max(0, now.Sub(was))
	level := max(0, math.Float64frombits(l.get(i, atLevel))-gone.Seconds()*float64(count)/per.Seconds())
	l.put(i, atLevel, math.Float64bits(level))
	l.put(i, atTime, uint64(now.UnixNano()))
	if math.IsNaN(level) || level+1 > float64(count) {
		return false
	}
	l.put(i, atLevel, math.Float64bits(level+1))
	return true
}

// Close gives up the file. What is spent afterwards is refused.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.page == nil {
		return nil
	}
	err := unix.Munmap(l.page)
	l.page = nil
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	return err
}
