package neighbours

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// seen is what the groups of all boxes were seen to use, at most, as shares of
// their own ceilings.
type seen struct {
	boxes             map[string]bool
	cpu, memory, pids float64
}

// judge fails the test if the nuisances were none: then it has shown nothing.
func (s seen) judge(t *testing.T, tier box.TierName) {
	t.Helper()
	if len(s.boxes) < len(nuisances)+1 {
		t.Errorf("%d boxes were watched, of %d", len(s.boxes), len(nuisances)+1)
	}
	if s.cpu < 0.2 || s.memory < 0.5 { // the rest of this machine is busy, too: see cpu
		t.Errorf("no box came near its ceilings: %+v", s)
	}
	// What a guest's processes are to the host is the sentry's threads.
	if tier == box.TierProcess && s.pids < 1 {
		t.Errorf("no box had all the tasks it may: %+v", s)
	}
}

// watch reads the group of every box, time and again until ended is closed, and
// compares what it uses with its ceilings.
func watch(t *testing.T, ended <-chan struct{}) seen {
	s := seen{boxes: map[string]bool{}}
	m, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		t.Error(err)
		return s
	}
	clocks := map[string]clock{}
	for {
		select {
		case <-ended:
			return s
		case <-time.After(50 * time.Millisecond):
		}
		for _, id := range boxes(t) {
			// First the ceilings: what was used before they were all set counts for
			// nothing.
			l, ok := ceilingsOf(id)
			if !ok {
				continue
			}
			g, err := m.Open(id)
			if err != nil {
				continue // it has gone
			}
			begun := time.Now()
			st, err := g.Stats()
			if err != nil {
				continue
			}
			now := time.Now()
			s.boxes[id] = true
			l.check(t, id)
			s.memory = max(s.memory, share(t, id, "bytes of memory", st.MemoryCurrent.N, l.memory, forced))
			s.pids = max(s.pids, share(t, id, "tasks", st.PidsCurrent.N, l.pids, trying()))
			c, ok := clocks[id]
			switch {
			case !ok:
				clocks[id] = clock{begun, st.CPU.N}
			case begun.Sub(c.at) > time.Second:
				// Quota is handed out by periods of 100 ms, the first and the last
				// of which may lie half outside, and to each core in slices of 5 ms.
				whole := now.Sub(c.at) + 200*time.Millisecond
				allowed := int64(float64(whole)*l.cores) + int64(50*time.Millisecond)
				s.cpu = max(s.cpu, share(t, id, "nanoseconds of processor time", st.CPU.N-c.used, allowed, 0))
				clocks[id] = clock{begun, st.CPU.N}
			}
		}
	}
}

// forced is what the kernel may charge a group with beyond its limit for a moment: an
// allocation of its own that must not fail (__GFP_NOFAIL; cgroup-v2.rst, memory.max:
// "the usage can temporarily go over the limit"). One page was seen.
const forced = 64 << 10

// trying is how many tasks may be counted that there will never be: the kernel counts
// one, looks whether that is too many, and takes it back (pids_try_charge in
// kernel/cgroup/pids.c), on each processor.
func trying() int64 { return int64(runtime.NumCPU()) }

type clock struct {
	at   time.Time
	used int64
}

// share fails the test if a box uses more than it may, and a little that is not its own
// doing.
func share(t *testing.T, id, what string, used, most, more int64) float64 {
	if used > most+more {
		t.Errorf("box %s uses %d %s, and may use %d", id, used, what, most)
	}
	return float64(used) / float64(most)
}

// ceilings are a live group's limits.
type ceilings struct {
	memory, swap, pids int64
	cores              float64
}

// check compares them with what was asked for, a nuisance's or the default, and
// what a tier adds for itself.
func (c ceilings) check(t *testing.T, id string) {
	t.Helper()
	const own = 64 << 20
	asked := int64(memory)
	cores, _ := strconv.ParseFloat(cpu, 64)
	if c.memory > asked+own {
		asked, cores = 512<<20, 1
	}
	if c.memory < asked || c.memory > asked+own || c.cores != cores || c.pids > processes*4+1024 {
		t.Errorf("box %s has the ceilings %+v, want %d and at most %d bytes more, %g cores", id, c, asked, own, cores)
	}
	if c.swap > c.memory {
		t.Errorf("box %s may swap: %d bytes with swap, %d without", id, c.swap, c.memory)
	}
}

// ceilingsOf reads them, in either version; false while they are not all set.
func ceilingsOf(id string) (ceilings, bool) {
	var c ceilings
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*/sunaba/" + id)
	dirs = append(dirs, "/sys/fs/cgroup/sunaba/"+id)
	read := func(names ...string) (string, bool) {
		for _, d := range dirs {
			for _, n := range names {
				if b, err := os.ReadFile(d + "/" + n); err == nil {
					return strings.TrimSpace(string(b)), true
				}
			}
		}
		return "", false
	}
	number := func(names ...string) int64 {
		s, _ := read(names...)
		n, _ := strconv.ParseInt(s, 10, 64) // "max" is 0: no limit
		return n
	}
	c.memory = number("memory.limit_in_bytes", "memory.max")
	c.pids = number("pids.max")
	c.swap = number("memory.memsw.limit_in_bytes")
	quota, period := number("cpu.cfs_quota_us"), number("cpu.cfs_period_us")
	if s, ok := read("cpu.max"); ok {
		if n, err := fmt.Sscan(s, &quota, &period); n != 2 || err != nil {
			return c, false // "max": no limit
		}
	}
	if period > 0 { // else it has gone meanwhile
		c.cores = float64(quota) / float64(period)
	}
	set := c.memory > 0 && c.memory < 1<<40 && c.pids > 0
	return c, set && c.cores > 0 // which comes last: the start of a box has no quota
}

// boxes lists the boxes there are.
func boxes(t *testing.T) []string {
	t.Helper()
	dir, err := os.ReadDir(filepath.Join(harness.State(t, harness.Root), "run"))
	if err != nil {
		t.Error(err)
	}
	var ids []string
	for _, e := range dir {
		ids = append(ids, e.Name())
	}
	return ids
}
