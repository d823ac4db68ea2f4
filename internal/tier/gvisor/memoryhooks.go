package gvisor

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// A box that lasts loses the guilty program when its memory is used up, and not
// itself. The guest's kernel has no such bound of its own, and at the host's the
// whole guest would end. So it is given one here: it looks how much memory the
// guest has, the more often the nearer that is to the limit; over the limit it
// stops everything but the agent, which is asked to end the largest program, and
// goes on when the memory of that one is free. What a guest can take between two
// looks is in the overhead of the box's group.
//
// The agent chooses since it knows whose program is whose, and tells its caller.
const (
	memoryRate   = 4 << 30 // bytes a second: more than a guest was seen to take
	memoryOften  = time.Millisecond
	memorySeldom = 25 * time.Millisecond
	// How long to wait for the agent's choice, which it makes in milliseconds, and in many
	// times that on a host that has no time for it. Then the others go on, over the limit.
	memoryPatience = 2 * time.Second
	// How long to wait for more of that program's memory once it has ended: what is
	// large is given back at once, and late on a host that has no time for it. While
	// the program lives, and while there comes more, it is waited for longer. Or else
	// another one would be ended for memory that is about to be free.
	memoryBack = time.Second
	memoryLate = 5 * time.Second
	// After a choice that freed nothing, or none, the others have to go on.
	memoryRest = 100 * time.Millisecond

	// What a process of the guest's costs on the host beside its memory: a process
	// there, with page tables. Measured: 0.35 MiB (sleep), 0.43 (python), 0.5 (bash).
	// Many count as memory of the guest's, as a kernel's own do on Linux; the first
	// of them are in the overhead of the box's group.
	processCost = 512 << 10
	processFree = 64
	// So it is with what the guest's kernel holds for the guest, such as names and
	// attributes of its files: 3.4 KiB each, measured.
	heapFree = 32 << 20
	// heapPause is between two collections of what that kernel no longer needs.
	heapPause = 100 * time.Millisecond
)

// outOfMemory asks the agent to end the largest program.
const outOfMemory = linux.SIGUSR1

// memoryKeeper is that bound, in the sentry. It does nothing until begin.
type memoryKeeper struct {
	limit  uint64 // bytes; 0 = none
	report func()

	claimed atomic.Int64 // bytes that calls under way may take; see claim

	once      sync.Once
	collected time.Time            // when memory that is no longer needed was last looked for
	asked     time.Time            // when the agent was asked, while it has not answered; see ask
	killed    chan kernel.ThreadID // whom the agent has ended
}

func newMemoryKeeper(limit uint64, report func()) *memoryKeeper {
	return &memoryKeeper{limit: limit, report: report, killed: make(chan kernel.ThreadID, 16)}
}

// begin starts to look. It is called with any task of the guest's.
func (k *memoryKeeper) begin(t *kernel.Task) {
	if k.limit > 0 {
		k.once.Do(func() { go k.run(t.Kernel()) })
	}
}

// watchKill hears of what the guest's first process ends.
func (k *memoryKeeper) watchKill(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		ret, ctl, err := fn(t, sysno, args)
		if err == nil && linux.Signal(args[1].Int()) == linux.SIGKILL && t.ThreadGroup() == t.Kernel().GlobalInit() {
			select {
			case k.killed <- kernel.ThreadID(args[0].Int()):
			default: // nobody waits for it
			}
		}
		return ret, ctl, err
	}
}

func (k *memoryKeeper) run(kern *kernel.Kernel) {
	settle()
	for {
		left, err := k.left(kern)
		if err != nil {
			return // no account of the memory: the host's limit is the only one
		}
		if left >= 0 {
			k.answeredLate()
			<-time.After(pace(left))
			continue
		}
		if !k.relieve(kern) {
			<-time.After(memoryRest)
		}
	}
}

// left is how much memory the guest may still take, in bytes.
func (k *memoryKeeper) left(kern *kernel.Kernel) (int64, error) {
	used, err := kern.MemoryFile().TotalUsage()
	left := int64(k.limit) - int64(used)
	if ns := kern.RootPIDNamespace(); ns.NumTasks() > processFree { // there are no fewer tasks than processes
		left -= int64(max(len(ns.ThreadGroups())-processFree, 0)) * processCost
	}
	return left - max(ownMemory()-heapFree, 0), err
}

// settle gives back what the start of a box that lasts needed, some MiB of each of
// its processes, once nobody waits for it.
func settle() { time.AfterFunc(2*time.Second, debug.FreeOSMemory) }

// collect gives back what the guest's kernel no longer needs, such as for files
// that were removed, and reports whether there is memory now. It takes as long as
// a guest would take to fill that again: only while it stands still.
func (k *memoryKeeper) collect(kern *kernel.Kernel) bool {
	if ownMemory() <= heapFree || time.Since(k.collected) < heapPause {
		return false
	}
	debug.FreeOSMemory()
	k.collected = time.Now()
	left, err := k.left(kern)
	return err == nil && left >= 0
}

// ownMemory is what this process has of the host's memory for itself, in bytes:
// the Go runtime's.
func ownMemory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 || s[1].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// pace is when to look again with so many bytes left.
func pace(left int64) time.Duration {
	if left >= memoryRate { // no overflow below
		return memorySeldom
	}
	return min(max(time.Duration(left)*time.Second/memoryRate, memoryOften), memorySeldom)
}

// relieve stops all programs and has the agent end one after the other, until
// there is memory again. It reports whether there is.
func (k *memoryKeeper) relieve(kern *kernel.Kernel) bool {
	first := kern.GlobalInit()
	if first == nil {
		return false // the guest ends
	}
	s := stopped{}
	defer s.endAll()
	k.answeredLate()
	for len(k.killed) > 0 {
		<-k.killed
	}
	for {
		s.begin(kern, first)
		if k.collect(kern) {
			return true
		}
		if !k.ask(func() error {
			return first.SendSignal(&linux.SignalInfo{Signo: int32(outOfMemory), Code: linux.SI_KERNEL})
		}) {
			return false
		}
		victim, ok := k.ended(kern, first, s)
		if !ok {
			return false
		}
		k.answered()
		if freed(func() (int64, error) { return k.left(kern) }, func() bool { return s.live(victim) }) {
			return true
		}
	}
}

// ask asks the agent, unless it is still at what it was asked before: it would end one
// more when there is memory again. One that finds nobody says nothing. It reports whether
// the agent can be asked.
func (k *memoryKeeper) ask(send func() error) bool {
	if !k.asked.IsZero() && time.Since(k.asked) <= memoryLate {
		return true
	}
	k.asked = time.Now()
	return send() == nil
}

func (k *memoryKeeper) answered() {
	k.asked = time.Time{}
	k.report()
}

// answeredLate takes an answer that came when it was no longer waited for. What comes
// much later is none.
func (k *memoryKeeper) answeredLate() {
	if k.asked.IsZero() {
		return
	}
	select {
	case <-k.killed:
		k.answered()
	default:
		if time.Since(k.asked) > memoryLate {
			k.asked = time.Time{}
		}
	}
}

// ended waits until the agent has ended a program, and lets that one go on, to
// its end. It returns the process, nil if there is none of that number any more.
func (k *memoryKeeper) ended(kern *kernel.Kernel, first *kernel.ThreadGroup, s stopped) (*kernel.ThreadGroup, bool) {
	deadline := time.After(memoryPatience)
	for {
		select {
		case pid := <-k.killed:
			tg := kern.RootPIDNamespace().ThreadGroupWithID(pid)
			if tg != nil {
				s.end(tg)
			}
			return tg, true
		case <-deadline:
			return nil, false
		case <-time.After(memoryOften):
			s.begin(kern, first) // what was started meanwhile
		}
	}
}

// freed waits until there is memory again, which left tells in bytes: as long as the
// program lives that was ended, and as there comes more.
func freed(left func() (int64, error), lives func() bool) bool {
	most, begun := int64(math.MinInt64), time.Now()
	for more := begun; ; <-time.After(memoryOften) {
		now := time.Now() // before the look: a host without time may come to it late
		n, err := left()
		if err != nil || n >= 0 {
			return err == nil
		}
		if n > most || lives() {
			most, more = max(most, n), now
		}
		if now.Sub(more) > memoryBack || now.Sub(begun) > memoryLate {
			return false
		}
	}
}

// stopped are the tasks that stand still because of us.
type stopped map[*kernel.Task]bool

// begin stops all tasks but the first process's.
func (s stopped) begin(kern *kernel.Kernel, first *kernel.ThreadGroup) {
	for _, t := range kern.RootPIDNamespace().Tasks() {
		if t.ThreadGroup() != first && !s[t] {
			s[t] = true
			t.BeginExternalStop()
		}
	}
}

// end lets a process go on.
func (s stopped) end(tg *kernel.ThreadGroup) {
	for t, stands := range s {
		if stands && t.ThreadGroup() == tg {
			s[t] = false
			t.EndExternalStop()
		}
	}
}

// live reports whether a process that was stopped has not let go of all that it had.
func (s stopped) live(tg *kernel.ThreadGroup) bool {
	for t := range s {
		if t.ThreadGroup() == tg && t.ExitState() < kernel.TaskExitZombie {
			return true
		}
	}
	return false
}

func (s stopped) endAll() {
	for t, stands := range s {
		if stands {
			t.EndExternalStop()
		}
	}
}
