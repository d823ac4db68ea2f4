package limits

import (
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// place is where a program runs: behind which walls, started by whom.
type place struct {
	tier box.TierName
	user harness.User
}

// run is a whole command line for p. What an ordinary user's box of the process
// tier writes is in memory, so that the disk has to fit into it: it is smaller
// there unless the test says what it is.
func (p place) run(args ...string) []string {
	cmd := []string{"run", "--tier", string(p.tier)}
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

// held puts a pause at each HOLD of a Python program, at which it has all that a
// limit allows: where touches are seen by looking, a moment is not enough. On a
// host that is not busy a look comes every 50 ms, or every 200 if it takes long.
func (p place) held(code string) string {
	pause := "pass"
	if p.tier == box.TierProcess {
		pause = "__import__('time').sleep(2)"
	}
	return strings.ReplaceAll(code, "HOLD", pause)
}
