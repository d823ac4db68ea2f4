package daemon

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/clock"
)

// process is a program that was started here, and its record afterwards.
type process struct {
	pid     int
	argv    []string
	dir     string
	user    string
	tag     string
	number  uint64 // of idempotency
	started time.Time
	out     *output
	in      *input
	master  *os.File   // of its terminal, if it has one
	reads   []*os.File // where its output comes from

	exited chan struct{} // closed when the kernel has told its end
	done   chan struct{} // closed when end is set

	// Under the table's lock:
	status syscall.WaitStatus
	usage  syscall.Rusage
	ended  time.Time
	by     pb.End_By // who ended it: the deadline, its output, or nobody
	short  bool      // it, or one below it, was killed for want of memory
	timers []*clock.Timer
	end    *pb.End // all of it is told: nothing of it changes any more
}

// Bounds of what is kept of processes that have ended: the newest of them, and of
// what these have written no more than that; one that it does not hold is
// forgotten.
const (
	maxLive       = 1024
	maxEnded      = 256
	maxEndedBytes = 16 << 20
)

// table knows every process that was started here. It reaps all children of
// this process, orphans that were handed to it among them.
type table struct {
	starter *starter
	scratch *scratches
	clock   *clock.Clock // of programs
	started sync.Mutex   // one start at a time
	held    atomic.Int64

	mu   sync.Mutex
	all  []*process       // in the order of their start
	live map[int]*process // not reaped
}

func newTable(s *starter, c *clock.Clock) *table {
	t := &table{starter: s, scratch: newScratches(), clock: c, live: map[int]*process{}}
	t.reapForEver()
	return t
}

// find returns a process that is alive or kept, or nil.
func (t *table) find(pid uint32) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept(int(pid))
}

func (t *table) kept(pid int) *process {
	for _, p := range slices.Backward(t.all) { // a number may have been used before
		if p.pid == pid {
			return p
		}
	}
	return nil
}

// list makes a process one that is told of. An older record of the same number
// goes.
func (t *table) list(p *process) {
	if old := t.kept(p.pid); old != nil {
		t.all = slices.DeleteFunc(t.all, func(q *process) bool { return q == old })
	}
	t.all = append(t.all, p)
}

// forget drops the record of a process that has ended, and reports whether it
// has.
func (t *table) forget(p *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.end == nil {
		return false
	}
	t.all = slices.DeleteFunc(t.all, func(q *process) bool { return q == p })
	return true
}

// bound forgets the oldest records beyond what is kept.
func (t *table) bound() {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, bytes := 0, 0
	for _, p := range slices.Backward(t.all) {
		if p.end == nil {
			continue
		}
		n++
		if bytes += p.out.kept(); n > maxEnded || n > 1 && bytes > maxEndedBytes {
			t.all = slices.DeleteFunc(t.all, func(q *process) bool { return q == p })
			bytes -= p.out.kept()
			n--
		}
	}
}

// describe tells of a process.
func (t *table) describe(p *process) *pb.Process {
	return &pb.Process{
		Pid: uint32(p.pid), Tag: p.tag, Argv: p.argv, Dir: p.dir, User: p.user,
		StartedUnixMillis: p.started.UnixMilli(), Terminal: p.master != nil, End: p.end,
	}
}
