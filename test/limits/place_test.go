package limits

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// place is where a program runs: behind which walls, started by whom.
type place struct {
	tier box.TierName
	user harness.User
}

// run is a whole command line for p. The deadline that a run has by default is one
// of a quiet host: where the test says nothing of time, it comes much later. What an
// ordinary user's box of the process tier writes is in memory, so that the disk has
// to fit into it: it is smaller there unless the test says what it is.
func (p place) run(args ...string) []string {
	cmd := []string{"run", "--tier", string(p.tier)}
	if !slices.Contains(args, "--timeout") {
		cmd = append(cmd, "--timeout", "600")
	}
	if p.tier == box.TierProcess {
		cmd = append(cmd, "--trust", "trusted")
		if p.inMemory() && !slices.Contains(args, "--disk") {
			cmd = append(cmd, "--disk", "32m")
		}
	}
	return append(cmd, args...)
}

// inMemory reports whether what a program writes counts as its memory.
func (p place) inMemory() bool { return p.tier == box.TierProcess && p.user == harness.Ordinary }

// source is the account in which a limit's touch is found, by its first words.
// The guest kernel tells of each refusal. The host's counts those of a control
// group only; what else is full on this tier is seen by looking.
func (p place) source(limit string) string {
	switch {
	case p.tier == box.TierGvisor:
		return "guest kernel"
	case limit == "disk":
		return "size of the writable store"
	case limit == "max_files":
		return "inodes of the writable store"
	case limit == "max_processes" && p.user == harness.Root:
		return "host cgroup v"
	}
	return "watchdog"
}

// hit is a limit that was touched; ended is one that ended the run.
func (p place) hit(limit string) box.LimitHit {
	return box.LimitHit{Limit: limit, Source: p.source(limit)}
}

func (p place) end(limit string) box.LimitHit {
	return box.LimitHit{Limit: limit, Source: p.source(limit), Ended: true}
}

// held runs a Python program with a pause at each HOLD, at which it has all that a
// limit allows, to an end of its own, and holds it to hits: where touches are seen by
// looking, a moment is not enough. On a host that is not busy a look comes every 50 ms,
// or every 200 if it takes long; on one that is, what was not seen in a short pause is
// to be seen in a longer one.
func held(t *testing.T, p place, code string, hits []box.LimitHit, run func(code string) end) end {
	t.Helper()
	for pause := 2; ; pause *= 5 {
		e := run(hold(code, p, pause))
		looked := p.tier == box.TierProcess && pause < 50
		if looked && e.Cause == box.Exited && len(e.LimitsHit) < len(hits) {
			t.Logf("in pauses of %ds was seen only %+v", pause, e.LimitsHit)
			continue
		}
		return e
	}
}

// pythonHeld is held for a run with flags.
func pythonHeld(t *testing.T, p place, code string, hits []box.LimitHit, flags ...string) end {
	t.Helper()
	e := held(t, p, code, hits, func(code string) end { return python(t, p, code, flags...) })
	e.exited(t, hits...)
	return e
}

func hold(code string, p place, seconds int) string {
	pause := "pass"
	if p.tier == box.TierProcess {
		pause = fmt.Sprintf("__import__('time').sleep(%d)", seconds)
	}
	return strings.ReplaceAll(code, "HOLD", pause)
}

// hits lists limits that were touched.
func (p place) hits(limits ...string) (all []box.LimitHit) {
	for _, l := range limits {
		all = append(all, p.hit(l))
	}
	return all
}
