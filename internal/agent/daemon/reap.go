package daemon

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// reapForEver takes the ends of all children as they come.
func (t *table) reapForEver() {
	wake := make(chan os.Signal, 1)
	signal.Notify(wake, syscall.SIGCHLD)
	go func() {
		for range wake {
			t.reap()
		}
	}()
}

// reap is the only place where this process waits for a child, so that nobody
// takes another's end.
func (t *table) reap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &usage)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		p := t.live[pid]
		if p == nil {
			continue // an orphan
		}
		delete(t.live, pid)
		if p.by != pb.End_BY_UNSPECIFIED {
			// It was told to go: what is left of its group goes with it.
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		p.status, p.usage, p.ended = status, usage, time.Now()
		for _, timer := range p.timers {
			timer.Stop()
		}
		close(p.exited)
	}
}

// attend moves a process's output, and settles its record when all is told.
func (t *table) attend(p *process) {
	var pumps sync.WaitGroup
	woken := make(chan struct{})
	for i, f := range p.reads {
		pumps.Go((&pump{out: p.out, i: i, f: f, scratch: t.scratch, exited: p.exited, woken: woken}).run)
	}
	<-p.exited
	p.in.close()
	p.out.mu.Lock()
	p.out.ended = true
	p.out.mu.Unlock()
	for _, f := range p.reads {
		_ = f.SetReadDeadline(time.Now()) // wakes a blocked read; the rest is read by drain
	}
	close(woken)
	pumps.Wait()
	for _, f := range p.reads {
		f.Close()
	}
	p.out.finish()
	out, errs := p.out.written()
	t.mu.Lock()
	// The kernel counts a child's memory from before its program, when it was ours:
	// MaxRssBytes is never less than what this process has.
	p.end = &pb.End{
		Status: uint32(p.status), StdoutBytes: out, StderrBytes: errs, By: p.endedBy(),
		CpuMicros:       uint64(time.Duration(p.usage.Utime.Nano()+p.usage.Stime.Nano()) / time.Microsecond),
		MaxRssBytes:     uint64(p.usage.Maxrss) << 10,
		EndedUnixMillis: p.ended.UnixMilli(),
	}
	t.mu.Unlock()
	close(p.done)
	t.bound()
}

// signal signals a process that has not been reaped, or its group: the number
// cannot be another's, since only reap frees it.
func (t *table) signal(p *process, s syscall.Signal, group bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[p.pid] != p {
		return syscall.ESRCH
	}
	target := p.pid
	if group {
		target = -target
	}
	return syscall.Kill(target, s)
}

// condemn ends a process's group for a reason: with SIGTERM first, if there is
// grace.
func (t *table) condemn(p *process, by pb.End_By, grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[p.pid] != p {
		return
	}
	if p.by == pb.End_BY_UNSPECIFIED {
		p.by = by
	}
	if grace <= 0 {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		return
	}
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	_ = syscall.Kill(-p.pid, syscall.SIGCONT) // one that is stopped must hear it
	p.timers = append(p.timers, t.clock.AfterFunc(grace, func() { t.condemn(p, by, 0) }))
}
