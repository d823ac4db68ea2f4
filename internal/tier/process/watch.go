package process

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host/procs"
)

// How often the watchdog looks: where it is what bounds the box's memory, and
// where it only tells of limits that the kernel enforces. A look takes about
// 0.1 ms. Where it takes long, because the box is full, it comes less often: it
// may use a twentieth of a core, but is not further away than lookLate times
// what it should be.
const (
	boundEvery = 25 * time.Millisecond
	tellEvery  = 50 * time.Millisecond
	lookShare  = 20
	lookLate   = 4
)

// How long the cell may take to say what the store holds: a look of many, which is
// then taken without, and one on which a run's account depends. On a host that has
// much else to do a cell may be late, and a limit that was touched is told all the
// same.
const (
	lookWait    = time.Second
	accountWait = 20 * time.Second
)

// watchdog looks at a living box from outside, for what no account of the
// kernel's tells of. The kernel refuses a descriptor that is over RLIMIT_NOFILE,
// a task that is over RLIMIT_NPROC, and a byte that does not fit into the store,
// but counts none of these refusals; a box that has all that it may is taken as
// one that was refused. Without a control group there is no bound of memory but
// this one either. With one, the kernel kills a process, in version 1 only that:
// the watchdog sees to it that the box ends, as it does in version 2. What waits in
// sockets is in no group's account: it is bounded from here, by as much again as
// the memory limit.
//
// It sees the box through the box's own /proc, which lists nobody else, as a
// process that the box has no power over.
type watchdog struct {
	b     *pbox
	proc  *os.File
	oom   <-chan struct{} // tells when to look at the group's account; nil without one
	quit  context.CancelFunc
	spare atomic.Int64   // bytes that the agent may have beside what the programs left
	marks sync.WaitGroup // who marks programs
	once  sync.Once
	ended chan struct{}   // closed by stop
	done  chan struct{}   // closed when it no longer looks
	noted map[string]bool // limits that a box that lasts was told of; see tellLasting
}

// watchdogSource is whose account the limits that it finds are.
const watchdogSource = "watchdog"

// watch starts the box's watchdog. The cell must be set up.
func (b *pbox) watch() (*watchdog, error) {
	proc, err := os.Open(fmt.Sprintf("/proc/%d/root/proc", b.Child.Pid()))
	if err != nil {
		return nil, box.Errorf(box.Unusable, "create box", "cannot watch the box: %w", err)
	}
	ctx, quit := context.WithCancel(context.Background())
	w := &watchdog{b: b, proc: proc, quit: quit, ended: make(chan struct{}), done: make(chan struct{})}
	if b.Group != nil {
		if w.oom, err = b.Group.WatchOOM(ctx); err != nil {
			quit()
			proc.Close()
			return nil, err
		}
	}
	if b.Group != nil && b.Spec.Lasting {
		w.marks.Go(func() { w.mark(ctx) })
	}
	go w.run()
	return w, nil
}

// stop tells a watchdog, if there is one, to look no more.
func (w *watchdog) stop() {
	if w != nil {
		w.once.Do(func() { close(w.ended) })
	}
}

// wait returns when a watchdog that was told to stop has stopped.
func (w *watchdog) wait() {
	if w != nil {
		<-w.done
	}
}

func (w *watchdog) run() {
	defer close(w.done)
	defer w.proc.Close()
	defer w.marks.Wait()
	defer w.quit()
	every := tellEvery
	if w.b.Group == nil {
		every = boundEvery
	}
	t := time.NewTimer(every)
	defer t.Stop()
	outOfMemory := false
	for {
		select {
		case <-w.ended:
			return
		case _, ok := <-w.oom:
			if !ok {
				w.oom = nil
				continue
			}
			outOfMemory = true // said before what was killed is counted
			continue
		case <-t.C:
		}
		if w.b.held.Load() {
			t.Reset(every)
			continue
		}
		if w.b.damage() != nil {
			w.b.Child.Kill() // Run says why
			return
		}
		begun := time.Now()
		for _, hit := range w.look(lookWait) {
			w.tell(hit)
		}
		if outOfMemory {
			if hit, ok := w.b.OutOfMemory(); ok {
				w.tell(hit)
				outOfMemory = false
			}
		}
		t.Reset(max(every, min(lookShare*time.Since(begun), lookLate*every)))
	}
}

// mark marks programs until ctx ends. It does so beside the looks, which take long
// when a box is full, and wait for who is told of a limit: what is new grows
// meanwhile.
func (w *watchdog) mark(ctx context.Context) {
	limits, _ := w.b.Group.Now() // none if it cannot be read
	v := &victims{score: scoreOf(limits.Memory), group: w.b.Group.MemoryProcs, spare: map[int]bool{1: true, w.b.cell.Agent: true}, marked: make(map[int]bool)}
	t := time.NewTicker(tellEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !w.b.held.Load() {
			v.look(string(w.b.Spec.ID))
		}
	}
}

// tell tells of a limit. One that ends the box does so also while nobody runs
// anything in it, but something in the background runs on.
func (w *watchdog) tell(hit box.LimitHit) {
	heard := w.b.Conn.Tell(wire.Limit{Name: hit.Limit, Source: hit.Source})
	if w.b.Spec.Lasting {
		w.tellLasting(hit)
		return
	}
	if hit.Limit == "memory" && !heard {
		w.endPrograms()
	}
}

func (w *watchdog) endPrograms() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = w.b.Conn.Call(ctx, "end", struct{}{}, nil) // if it fails, the next look tries again
}

// look returns the limits that the box is at now, of the store only if the cell says
// in time what it holds. A box that has gone is at none.
func (w *watchdog) look(wait time.Duration) []box.LimitHit {
	l := w.b.Spec.Limits
	all, err := procs.List(w.proc)
	if err != nil {
		return nil
	}
	var hits []box.LimitHit
	for _, p := range all {
		if p.OpenFiles() >= l.OpenFiles {
			hits = append(hits, box.LimitHit{Limit: "max_open_files", Source: watchdogSource})
			break
		}
	}
	sp, ok := w.b.space(wait)
	if ok {
		hits = append(hits, w.b.fullStore(sp)...)
	}
	if procs.QueuesOver(w.proc, l.Memory) {
		hits = append(hits, box.LimitHit{Limit: "memory", Source: watchdogSource})
	}
	if w.b.Group != nil {
		return hits
	}
	var tasks int64
	for _, p := range all {
		tasks += p.Tasks()
	}
	if tasks >= l.Processes {
		hits = append(hits, box.LimitHit{Limit: "max_processes", Source: watchdogSource})
	}
	if ok && procs.MemoryOver(w.b.Child.Pid(), all, sp.Bytes-sp.FreeBytes+sp.Shared, l.Memory+w.spare.Load()) {
		hits = append(hits, box.LimitHit{Limit: "memory", Source: watchdogSource})
	}
	return hits
}

// fullStore lists the limits of a store that has nothing left.
func (b *pbox) fullStore(sp wire.Space) []box.LimitHit {
	var hits []box.LimitHit
	if b.full(sp) {
		hits = append(hits, box.LimitHit{Limit: "disk", Source: "size of the writable store"})
	}
	if sp.FreeFiles == 0 {
		hits = append(hits, box.LimitHit{Limit: "max_files", Source: "inodes of the writable store"})
	}
	return hits
}

// full reports whether what was written is the disk limit, but for a part that
// a file system may refuse to use up: ext4 refuses what does not fit as a whole
// folio of the page cache (1 MiB in one write, Linux 6.16), and the store has a
// little more room than the limit says.
func (b *pbox) full(sp wire.Space) bool {
	limit := b.Spec.Limits.Disk
	return b.written(sp) > limit-min(1<<20, limit/32)
}

// written is what the store holds beside what is in an empty one, in bytes.
func (b *pbox) written(sp wire.Space) int64 {
	return max(b.cell.Fresh.FreeBytes-sp.FreeBytes, 0)
}

// space asks what the writable places hold: root asks the store itself, an
// ordinary user, who cannot reach it, the cell. A cell that does not answer in time
// has nothing to say about it.
func (b *pbox) space(wait time.Duration) (sp wire.Space, ok bool) {
	if b.held.Load() {
		return sp, false
	}
	if b.fs != nil {
		var st syscall.Statfs_t
		if err := syscall.Fstatfs(int(b.fs.Fd()), &st); err != nil {
			return sp, false
		}
		return wire.Space{
			Bytes: int64(st.Blocks) * st.Bsize, FreeBytes: int64(st.Bavail) * st.Bsize,
			Files: int64(st.Files), FreeFiles: int64(st.Ffree),
		}, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := b.Conn.Call(ctx, "space", struct{}{}, &sp)
	return sp, err == nil
}

// sampled says what on_limit: kill cannot promise on this tier, in the words
// that a box reports; limited is whether the box has a control group, which
// counts refused tasks.
func sampled(limited bool) string {
	names := []string{"max_open_files", "disk", "max_files"}
	if !limited {
		names = append([]string{"max_processes"}, names...)
	}
	return "on_limit: the kernel counts no refusals of " + strings.Join(names, ", ") +
		"; the box is looked at every 50 ms, and a program that has given back by then what it had is not ended"
}
