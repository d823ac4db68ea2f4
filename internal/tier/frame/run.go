package frame

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
)

// Run implements box.Box.
func (b *Box) Run(ctx context.Context, cmd box.Command, st box.Streams) (box.Result, error) {
	e, err := b.adapt.Exec(cmd)
	if err != nil {
		return box.Result{}, err
	}
	if e.Dir == "" {
		e.Dir = b.Spec.Workdir
	}
	if l := b.Spec.Limits; l.Timeout > 0 && !b.Spec.Lasting {
		e.Expire = l.Timeout + l.Grace + expireMargin
	}
	started := time.Now()
	b.told.Store(b.kills.Load()) // what was seen between runs is no run's
	r := &run{b: b, st: st, limit: make(chan box.LimitHit, 8)}
	b.Conn.OnLimit(r.onLimit)
	if b.Spec.Lasting {
		defer b.Conn.OnLimit(b.noteLimit)
	} else {
		defer b.Conn.OnLimit(nil)
	}

	pty := host.OpenPTY
	if t, ok := b.adapt.(Terminals); ok {
		pty = t.Terminal
	}
	pipes, err := openStreams(cmd, st, pty)
	if err != nil {
		return box.Result{}, err
	}
	defer pipes.close()
	if b.site.Root() {
		if err := pipes.give(b.site.HostUser(b.Spec.ID)); err != nil {
			return box.Result{}, err
		}
	}
	if ctx.Err() != nil {
		return r.finish(r.stopped(stopOf(ctx)), started), nil
	}
	// From here on the program may run, and write, before we are told that it
	// does. Its start is not given up half-way.
	pipes.pumpOutput()
	var ps wire.Started
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StartTimeout)
	err = b.Conn.Call(cctx, "exec", e, &ps, pipes.guest[:]...)
	cancel()
	pipes.closeGuest()
	if err != nil {
		res, err := r.startFailed(ctx, cmd, err)
		pipes.drain(ctx)
		if err != nil {
			return box.Result{}, err
		}
		return r.finish(res, started), nil
	}
	pipes.pumpInput()
	if pipes.master != nil {
		go pipes.resize(ctx, st.Resize)
	}

	if b.Spec.Limits.OnLimit == box.LimitKill {
		asked := time.NewTicker(askEvery)
		defer asked.Stop()
		go r.ask(pipes.ended, asked.C)
	}
	waited := make(chan error, 1)
	var w wire.Waited
	go func() { waited <- b.Conn.Call(context.WithoutCancel(ctx), "wait", wire.Wait{Pid: ps.Pid}, &w) }()
	res := r.await(ctx, ps.Pid, waited, &w)
	if !pipes.drain(ctx) {
		// What the program wrote was not all delivered before the caller
		// stopped the run: it did not simply end.
		res = r.stopped(stopOf(ctx))
	}
	return r.finish(res, started), nil
}

// expireMargin is how much later than this process's clock the one of the box's
// first process ends the run. This process may be stopped (SIGSTOP), and the
// guest's kernel may not answer when it is told to end a program.
const expireMargin = 2 * time.Second

// askEvery is how often a tier is asked for limits that it does not tell of.
const askEvery = 50 * time.Millisecond

// ask looks for limits that end the run until it has ended.
func (r *run) ask(ended <-chan struct{}, ticks <-chan time.Time) {
	for {
		select {
		case <-ended:
			return
		case <-ticks:
		}
		for _, hit := range r.b.adapt.Touched(r.b.stats()) {
			r.onLimit(wire.Limit{Name: hit.Limit, Source: hit.Source})
		}
	}
}

// stats is the account of the box's group, or zero if there is none, or none now.
func (b *Box) stats() cgroup.Stats {
	if b.Group == nil {
		return cgroup.Stats{}
	}
	s, err := b.Group.Stats()
	if err != nil {
		return cgroup.Stats{}
	}
	return s
}

// finish completes a result with the accounts that outlive the program.
func (r *run) finish(res box.Result, started time.Time) box.Result {
	if hit, ok := r.b.OutOfMemory(); ok {
		r.add(hit)
	}
	s := r.b.stats()
	for _, hit := range append(r.b.adapt.Touched(s), r.b.fullVolumes()...) {
		r.add(hit)
	}
	r.b.told.Store(r.b.kills.Load()) // the next run's account begins here
	res.Limits = r.hits()
	res.Usage = r.b.usage(s, time.Since(started))
	return res
}

// run is the state of one Run.
type run struct {
	b     *Box
	st    box.Streams
	limit chan box.LimitHit // limits that end the run

	mu   sync.Mutex
	seen []box.LimitHit
	by   string // name of the limit that ended the run; empty if none did
}

// await waits for the program's end, by itself or by ours. It never returns a
// cause that nobody observed, and where several things happen at one moment
// the same one is told every time: a limit that ends the run, then the
// program's own end, then the caller's wish.
func (r *run) await(ctx context.Context, pid int32, waited chan error, w *wire.Waited) box.Result {
	var stop *box.Stop
	select {
	case hit := <-r.limit:
		stop = stopFor(hit)
	case err := <-waited:
		return r.ended(err, w)
	case <-ctx.Done():
		select {
		case err := <-waited:
			return r.ended(err, w)
		default:
			stop = stopOf(ctx)
		}
	}
	r.end(context.WithoutCancel(ctx), pid, stop.Grace, waited)
	return r.stopped(stop)
}

// end makes the program end, and returns when it has. It asks first, if there
// is grace, and then no more. A program that ends within its grace still ended
// because of us.
func (r *run) end(ctx context.Context, pid int32, grace time.Duration, waited chan error) {
	if grace > 0 {
		r.signal(ctx, pid, syscall.SIGTERM)
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-waited:
			return
		case <-t.C:
		}
	}
	r.signal(ctx, pid, syscall.SIGKILL)
	t := time.NewTimer(callTimeout)
	defer t.Stop()
	select {
	case <-waited:
	case <-t.C:
		r.b.killAll() // the guest's kernel does not answer
	}
}

// signal sends to the program and, so that a shell's foreground job hears it
// too, to its process group. It does not wait for a guest that does not answer.
func (r *run) signal(ctx context.Context, pid int32, sig syscall.Signal) {
	go func() {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_ = r.b.Conn.Call(ctx, "signal", wire.Signal{Pid: pid, Signal: int(sig), Group: true}, nil)
	}()
}

// stopOf is why ctx ended.
func stopOf(ctx context.Context) *box.Stop {
	var stop *box.Stop
	if !errors.As(context.Cause(ctx), &stop) {
		stop = &box.Stop{Cause: box.Canceled}
	}
	return stop
}

func stopFor(hit box.LimitHit) *box.Stop {
	return &box.Stop{Cause: causeOf(hit.Limit), Limit: hit.Limit, Source: hit.Source}
}

func (r *run) stopped(s *box.Stop) box.Result {
	if s.Limit != "" {
		r.add(box.LimitHit{Limit: s.Limit, Source: s.Source})
		r.by = s.Limit
	}
	return box.Result{Cause: s.Cause}
}

// ended reads the program's own end. A broken link is judged by the group's
// counters. What the guest kernel refused came before the program's end on the
// same link, so a limit that ends the run is known by now.
func (r *run) ended(err error, w *wire.Waited) box.Result {
	if hit, ok := r.b.OutOfMemory(); ok {
		return r.stopped(stopFor(hit))
	}
	if r.b.Spec.Limits.OnLimit == box.LimitKill {
		for _, hit := range r.b.adapt.Touched(r.b.stats()) { // since it was asked last
			r.onLimit(wire.Limit{Name: hit.Limit, Source: hit.Source})
		}
	}
	select {
	case hit := <-r.limit:
		return r.stopped(stopFor(hit))
	default:
	}
	if err != nil && r.b.Conn.Expired() {
		r.b.killAll()
		return r.stopped(&box.Stop{Cause: box.Deadline, Limit: "timeout_sec", Source: "clock of the box"})
	}
	if err != nil {
		r.b.killAll() // parts of it may still run; nothing does that nobody can tell of
		return box.Result{Cause: box.Lost}
	}
	ws := syscall.WaitStatus(w.Status)
	if ws.Signaled() && ws.Signal() == syscall.SIGBUS && r.b.adapt.Full() {
		// A store into a mapped file is no system call that could be refused:
		// mmap(2) says SIGBUS.
		hit := box.LimitHit{Limit: "disk", Source: "size of the writable store"}
		r.add(hit)
		if r.b.Spec.Limits.OnLimit == box.LimitKill {
			return r.stopped(stopFor(hit))
		}
	}
	if ws.Signaled() {
		return box.Result{Cause: box.Signaled, Signal: int(ws.Signal())}
	}
	return box.Result{Cause: box.Exited, ExitCode: ws.ExitStatus()}
}

// OutOfMemory asks the host kernel whether it killed in this box's group because
// the group was at its limit, since the last run that was told of it. A kill for
// want of memory elsewhere is told as what it was to the program: a signal.
func (b *Box) OutOfMemory() (box.LimitHit, bool) {
	if b.Group == nil {
		return box.LimitHit{}, false
	}
	s, err := b.Group.Stats()
	if err != nil || !s.OutOfMemory() || s.OOMKills.N <= b.told.Load() {
		return box.LimitHit{}, false
	}
	b.kills.Store(s.OOMKills.N)
	return box.LimitHit{Limit: "memory", Source: s.OOMKills.Source}, true
}

// killAll ends the box from outside and returns when the host's kernel has ended
// all of it, or when it does not manage to.
func (b *Box) killAll() {
	b.Child.Kill()
	t := time.NewTimer(callTimeout)
	defer t.Stop()
	select {
	case <-b.Child.Done():
	case <-t.C:
	}
}

// onLimit hears from the box's side, through its first process.
func (r *run) onLimit(e wire.Limit) {
	if !isLimit(e.Name) {
		return
	}
	if r.b.Spec.Lasting {
		r.b.noteLimit(e)
	}
	hit := box.LimitHit{Limit: e.Name, Source: e.Source}
	if !r.add(hit) {
		return
	}
	if r.st.OnLimit != nil {
		r.st.OnLimit(hit)
	}
	if r.b.Spec.Limits.OnLimit == box.LimitKill || e.Name == "memory" && !r.b.Spec.Lasting {
		select {
		case r.limit <- hit:
		default:
		}
	}
}

// isLimit reports whether a word is one of the protocol's for a limit.
func isLimit(name string) bool {
	switch name {
	case "max_processes", "max_open_files", "disk", "max_files", "memory":
		return true
	}
	return false
}

// add records a hit and reports whether it was new.
func (r *run) add(h box.LimitHit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return addTo(&r.seen, h)
}

// hits returns what was touched; the one that ended the run is marked.
func (r *run) hits() []box.LimitHit {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.seen {
		r.seen[i].Ended = r.seen[i].Limit == r.by
	}
	return r.seen
}

func causeOf(limit string) box.Cause {
	switch limit {
	case "max_processes", "max_open_files":
		return box.ProcLimit
	case "disk", "max_files":
		return box.DiskLimit
	case "memory":
		return box.OutOfMemory
	case "timeout_sec":
		return box.Deadline
	case "idle_sec":
		return box.Idle
	case "max_output":
		return box.OutputLimit
	}
	return ""
}

// startFailed tells a program that cannot be started, the caller's mistake, from
// a box that is gone, or as good as gone: then the program may have run.
func (r *run) startFailed(ctx context.Context, cmd box.Command, err error) (box.Result, error) {
	if hit, ok := r.b.OutOfMemory(); ok {
		return r.stopped(stopFor(hit)), nil
	}
	if !errors.Is(err, wire.ErrGone) && !errors.Is(err, context.DeadlineExceeded) {
		return box.Result{}, r.b.adapt.NotStarted(cmd, err)
	}
	r.b.killAll()
	if ctx.Err() != nil {
		return r.stopped(stopOf(ctx)), nil
	}
	return box.Result{Cause: box.Lost}, nil
}

// usage is the host's account, read while the box still stands.
func (b *Box) usage(s cgroup.Stats, wall time.Duration) box.Usage {
	u := box.Usage{Wall: wall, Written: b.adapt.Written()}
	if b.Group != nil {
		u.CPU, u.MemoryPeak = s.CPUTime(), s.MemoryPeak.N
		return u
	}
	u.CPU, u.MemoryPeak = host.TreeUsage(b.Child.Pid())
	return u
}
