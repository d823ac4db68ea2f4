package engine

import (
	"context"
	"sync"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
)

// kills finds out whose end was one for want of memory, in a box on the host's
// kernel: that one counts kills and does not tell whose. A kernel of the box's own
// tells its agent, and this is not asked.
//
// A kill explains the end of a program that was started before it and was killed,
// or says as a shell does that a child of its was. Each explains one end. A program
// that kills itself after another one was killed can still pass for that one,
// whose end is then told as a signal: both are of one box.
type kills struct {
	mu     sync.Mutex
	told   int64                    // how many have explained an end
	before map[box.ProcessRef]int64 // how many there were when a program was started
}

// maxBegun bounds what is remembered of programs whose end nobody asks for.
const maxBegun = 4096

// begun notes how many kills there were before a program's start.
func (k *kills) begun(p box.Process, count int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.before == nil || len(k.before) > maxBegun {
		k.before = map[box.ProcessRef]int64{}
	}
	k.before[box.ProcessRef{PID: p.PID}] = count
	if p.Tag != "" {
		k.before[box.ProcessRef{Tag: p.Tag}] = count
	}
}

// explain reports whether one of so many kills is p's end.
func (k *kills) explain(p box.ProcessRef, count int64) bool {
	if p.PID != 0 {
		p.Tag = ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.before[p]
	if floor := max(before, k.told); known && count > floor {
		k.told = floor + 1
		delete(k.before, p)
		return true
	}
	return false
}

// counted is the box's account of such kills; ok is false where there is none to
// be asked.
func (l *live) counted(ctx context.Context) (n int64, ok bool) {
	if l.kept.Tier == box.TierGvisor {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	acc, err := l.box.Account(ctx)
	return acc.MemoryKills, err == nil
}

// judge says of a program that was killed whether that was for want of memory.
func (l *live) judge(ctx context.Context, p box.ProcessRef, end *box.End) {
	const kill = int(syscall.SIGKILL)
	if !(end.Cause == box.Signaled && end.Signal == kill || end.Cause == box.Exited && end.ExitCode == 128+kill) {
		return
	}
	if n, ok := l.counted(ctx); ok && l.kills.explain(p, n) {
		end.Cause = box.OutOfMemory
	}
}
