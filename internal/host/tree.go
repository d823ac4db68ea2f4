package host

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// TreeUsage sums the CPU time of a process and everything below it, and
// returns the largest resident set among them, from /proc. It is a sample:
// processes that have ended count only through the parent that reaped them.
func TreeUsage(root int) (cpu time.Duration, resident int64) {
	type proc struct {
		parent int
		ticks  int64
		pages  int64
	}
	procs := make(map[int]proc)
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0
	}
	for _, e := range dir {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name, in parentheses, may hold anything; see proc_pid_stat(5).
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 22 {
			continue
		}
		n := func(i int) int64 { v, _ := strconv.ParseInt(string(f[i]), 10, 64); return v }
		procs[pid] = proc{parent: int(n(1)), ticks: n(11) + n(12) + n(13) + n(14), pages: n(21)}
	}
	const ticksPerSecond = 100 // USER_HZ, fixed on every Linux this runs on
	for pid, p := range procs {
		for up, depth := pid, 0; up > 1 && depth < 64; depth++ {
			if up == root {
				cpu += time.Duration(p.ticks) * time.Second / ticksPerSecond
				resident = max(resident, p.pages*int64(os.Getpagesize()))
				break
			}
			up = procs[up].parent
		}
	}
	return cpu, resident
}
