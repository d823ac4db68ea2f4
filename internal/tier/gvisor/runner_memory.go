package gvisor

import (
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
)

// A box that lasts loses the guilty program when its memory is used up, not
// itself. The guest's kernel has no such limit, and the host's would take that
// kernel away. So the runner looks at how much memory the guest has, the more
// often the nearer that is to the limit, and has the agent end the largest
// program. What a program can take between the moment when it is over the limit
// and its end is in the group's overhead (lastingOverhead): the host's own limit
// is behind that, and ends the box.
const (
	memoryRate  = 4 << 30 // bytes a second: faster than a guest was seen to take memory
	memorySoon  = time.Millisecond
	memoryTried = 300 * time.Millisecond // for an end to show, before another program is ended
	memoryTries = 20                     // after which a box that nothing else bounds is ended
)

// outOfMemory asks the agent to end the largest program.
const outOfMemory = syscall.SIGUSR1

// keepMemory starts to look. Alone is for a box without a control group.
func (r *runner) keepMemory(limit int64, alone bool) error {
	sentry := r.c.SandboxPid()
	file, err := guestMemory(sentry)
	if err != nil {
		return err
	}
	source := "size of the guest's memory"
	over := func() (bool, time.Duration, error) {
		used, err := allocatedPath(file)
		return used > limit, pace(limit - used), err
	}
	go func() {
		t := time.NewTimer(sampleEvery)
		defer t.Stop()
		for tries := 0; ; {
			<-t.C
			full, next, err := over()
			if err != nil {
				return // the sentry has gone
			}
			if alone && r.tooLarge(sentry, file, limit) || full && alone && tries > memoryTries {
				r.Touched(wire.Limit{Name: "memory", Source: "watchdog"})
				r.End()
				return
			}
			if !full {
				tries = 0
				t.Reset(next)
				continue
			}
			tries++
			r.Touched(wire.Limit{Name: "memory", Source: source})
			if r.c.Sandbox.SignalProcess(r.c.ID, 1, outOfMemory, false) == nil && settles(over) {
				r.KilledForMemory()
			}
			t.Reset(memorySoon)
		}
	}()
	return nil
}

// settles reports whether memory became free in time.
func settles(over func() (bool, time.Duration, error)) bool {
	for end := time.Now().Add(memoryTried); time.Now().Before(end); <-time.After(memorySoon) {
		if full, _, err := over(); err != nil || !full {
			return err == nil
		}
	}
	return false
}

// pace is when to look again with so many bytes left.
func pace(left int64) time.Duration {
	if left >= memoryRate { // no overflow below
		return sampleEvery
	}
	return min(max(time.Duration(left)*time.Second/memoryRate, memorySoon), sampleEvery)
}

// tooLarge reports whether the guest's memory and what its kernel holds on its
// behalf are more than a control group would allow.
func (r *runner) tooLarge(sentry int, file string, limit int64) bool {
	used, err := allocatedPath(file)
	if err != nil {
		return false
	}
	heap, err := privateMemory(sentry)
	return err == nil && used+heap > limit+lastingOverhead
}
