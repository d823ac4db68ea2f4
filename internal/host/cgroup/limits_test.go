package cgroup

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// hog fills memory in a shell's child without any tool but head and tail.
const hog = "head -c 200000000 /dev/zero | tail >/dev/null"

func TestMemoryBombIsKilledAndCounted(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{Memory: 20 << 20})
	cmd := shell(t, g, hog+"; exit 0")
	cmd.Wait()
	s := stats(t, g)
	if s.OOMKills.N == 0 || s.MemoryLimitHits.N == 0 {
		t.Errorf("kills %+v, limit hits %+v: want both above 0", s.OOMKills, s.MemoryLimitHits)
	}
	// What the kernel must have for itself it charges beyond the limit, a page or so.
	if s.MemoryPeak.N < 15<<20 || s.MemoryPeak.N > 20<<20+64<<10 {
		t.Errorf("memory peak %d, want about the limit of 20 MiB", s.MemoryPeak.N)
	}
	if !strings.HasPrefix(s.OOMKills.Source, "host cgroup v") {
		t.Errorf("source %q does not name the file", s.OOMKills.Source)
	}
}

func TestExitCodesThatLookLikeOutOfMemoryAreNotCounted(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{Memory: 20 << 20})
	for _, script := range []string{"exit 137", "kill -9 $$"} {
		cmd := shell(t, g, script)
		cmd.Wait()
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if ws.ExitStatus() != 137 && ws.Signal() != syscall.SIGKILL {
			t.Errorf("%s: ended with %v", script, cmd.ProcessState)
		}
	}
	if s := stats(t, g); s.OOMKills.N != 0 {
		t.Errorf("out-of-memory kills %+v, want 0", s.OOMKills)
	}
}

func TestCPUQuotaThrottles(t *testing.T) {
	m := realManager(t)
	g := realGroup(t, m, Limits{MilliCPU: 10}) // so little that it is held back beside many others, too
	shell(t, g, "while :; do :; done")
	eventually(t, "throttled", func() bool { return stats(t, g).Throttled.N >= 3 })
	if s := stats(t, g); s.CPUTime() <= 0 {
		t.Errorf("cpu time %+v", s.CPU)
	}

	free := realGroup(t, m, Limits{})
	shell(t, free, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Wait()
	if s := stats(t, free); s.Throttled.N != 0 {
		t.Errorf("throttled %d times without a quota", s.Throttled.N)
	}
}

func TestPidsLimitRefusesAndCounts(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{Pids: 8})
	shell(t, g, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 60 & done; wait")
	eventually(t, "fork refused", func() bool { return stats(t, g).PidsMax.N > 0 })
	if s := stats(t, g); s.PidsCurrent.N > 8 || s.PidsPeak.Source != "" && s.PidsPeak.N > 8 {
		t.Errorf("current %+v, peak %+v: want at most 8", s.PidsCurrent, s.PidsPeak)
	}
}

func TestLimitsCanBeChangedAndLifted(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{Memory: 64 << 20, MilliCPU: 500})
	for _, bytes := range []int64{32 << 20, 128 << 20, 100<<20 + 1, 0, 64 << 20} {
		if err := g.SetMemory(bytes); err != nil {
			t.Errorf("SetMemory(%d): %v", bytes, err)
		}
	}
	for _, milli := range []int64{10, 2500, 0, 1000} {
		if err := g.SetCPU(milli); err != nil {
			t.Errorf("SetCPU(%d): %v", milli, err)
		}
	}
	if err := g.SetCPU(1); err == nil {
		t.Error("a quota below the kernel's least was taken")
	}
}

func TestSwapIsForbidden(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{Memory: 64 << 20})
	d, _ := g.dir("memory")
	for _, f := range []struct{ name, want string }{
		{"memory.swap.max", "0"},
		{"memory.memsw.limit_in_bytes", "67108864"},
		{"memory.swappiness", "0"},
	} {
		if b, err := os.ReadFile(d.path + "/" + f.name); err == nil {
			if got := strings.TrimSpace(string(b)); got != f.want {
				t.Errorf("%s is %s, want %s", f.name, got, f.want)
			}
			return
		}
	}
	t.Log("this kernel has no swap")
}

func TestUnenforceableLimitIsAnErrorUnlessAllowed(t *testing.T) {
	m := realManager(t)
	less := &Manager{fs: m.fs} // as if the host had no memory controller
	for _, tr := range m.trees {
		if !tr.has("memory") {
			less.trees = append(less.trees, tr)
		}
	}
	if len(less.trees) == 0 {
		t.Skip("one tree has all controllers here; the fake tree covers this")
	}
	if _, err := less.Create("never", Limits{Memory: 64 << 20}); err == nil {
		t.Error("a limit that nobody enforces was accepted")
	}
	g := realGroup(t, less, Limits{Memory: 64 << 20, Pids: 8, AllowMissing: true})
	if w := g.Weak(); len(w) != 1 || !strings.Contains(w[0], "memory") {
		t.Errorf("weak is %q, want one sentence about memory", w)
	}
}
