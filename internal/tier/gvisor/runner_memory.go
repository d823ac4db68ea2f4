package gvisor

import (
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
)

// outOfMemory asks the agent to end the largest program; see memoryKeeper.
const outOfMemory = syscall.SIGUSR1

// watchLasting ends a box that lasts, where no control group bounds it, when the
// guest's memory and what its kernel holds on its behalf are more than a group
// would allow: what the guest's kernel can bound by itself, it does.
func (r *runner) watchLasting(limit int64) error {
	sentry := r.c.SandboxPid()
	file, err := guestMemory(sentry)
	if err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for range tick.C {
			used, err := allocatedPath(file)
			if err != nil {
				return // the sentry has gone
			}
			heap, err := privateMemory(sentry)
			if err != nil {
				return
			}
			if used+heap > limit+lastingOverhead {
				r.Touched(wire.Limit{Name: "memory", Source: "watchdog"})
				r.EndBecause("the guest and its kernel used more memory than its limit allows")
				return
			}
		}
	}()
	return nil
}
