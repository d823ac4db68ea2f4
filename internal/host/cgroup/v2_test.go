package cgroup

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

const allThree = "cpuset cpu io memory hugetlb pids"

func (f *fakeV2) manager(self string) *Manager {
	return detect(f, f.top, f.mountinfo(), self, fakePID)
}

func (f *fakeV2) expect(t *testing.T, path, want string) {
	t.Helper()
	if got, err := f.Read(path); got != want || err != nil {
		t.Errorf("%s is %q, %v; want %q", strings.TrimPrefix(path, f.top), got, err, want)
	}
}

func TestV2GroupLifeAtTheTop(t *testing.T) {
	f := newFakeV2(t, allThree)
	f.put(f.top+"/cgroup.procs", "1\n2") // the real top may hold processes
	m := f.manager("0::/init.scope\n")
	g, err := m.Create("bx1", Limits{Memory: 100<<20 + 5, MilliCPU: 1500, Pids: 32})
	if err != nil {
		t.Fatal(err)
	}
	p := f.top + "/sunaba/bx1"
	f.expect(t, p+"/memory.max", "104857600")
	f.expect(t, p+"/memory.swap.max", "0")
	f.expect(t, p+"/memory.oom.group", "1")
	f.expect(t, p+"/cpu.max", "150000 100000")
	f.expect(t, p+"/pids.max", "32")

	if one, err := m.Create("bx2", Limits{Memory: 100 << 20, KillOne: true}); err != nil {
		t.Error(err)
	} else {
		f.expect(t, f.top+"/sunaba/bx2/memory.oom.group", "0")
		if err := one.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}

	if err := g.SetMemory(0); err != nil {
		t.Error(err)
	}
	f.expect(t, p+"/memory.max", "max")
	if err := g.SetCPU(0); err != nil {
		t.Error(err)
	}
	f.expect(t, p+"/cpu.max", "max 100000")
	if err := g.SetPids(40); err != nil {
		t.Error(err)
	}
	f.expect(t, p+"/pids.max", "40")

	if err := g.Add(fakePID); err != nil {
		t.Error(err)
	}
	if pids, err := g.Procs(); len(pids) != 1 || pids[0] != fakePID || err != nil {
		t.Errorf("processes %v, %v", pids, err)
	}
	if pids, err := g.MemoryProcs(); len(pids) != 1 || pids[0] != fakePID || err != nil {
		t.Errorf("processes whose memory it bounds: %v, %v", pids, err)
	}
	s := stats(t, g)
	want := Stats{
		CPU: Counter{1_500_000, "host cgroup v2 cpu.stat"}, Throttled: Counter{4, "host cgroup v2 cpu.stat"},
		MemoryCurrent: Counter{4096, "host cgroup v2 memory.current"}, MemoryPeak: Counter{8192, "host cgroup v2 memory.peak"},
		OOMKills: Counter{1, "host cgroup v2 memory.events"}, MemoryLimitHits: Counter{3, "host cgroup v2 memory.events"},
		OwnOOM:      Counter{2, "host cgroup v2 memory.events"},
		PidsCurrent: Counter{2, "host cgroup v2 pids.current"}, PidsPeak: Counter{7, "host cgroup v2 pids.peak"},
		PidsMax: Counter{5, "host cgroup v2 pids.events"},
	}
	if s != want {
		t.Errorf("stats\n got %+v\nwant %+v", s, want)
	}
	if file, err := g.FD(); err != nil || file.Name() != p {
		t.Errorf("FD: %v, %v", file, err)
	} else {
		file.Close()
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.top + "/sunaba"); !os.IsNotExist(err) {
		t.Errorf("sunaba is left: %v", err)
	}
	if _, err := g.Stats(); err == nil {
		t.Error("a removed group still has an account")
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Errorf("second Remove: %v", err)
	}
}

// The whole host, or a group above, may be out of memory: then the kernel kills
// in a group that is within its own limit.
func TestV2KillThatIsNotTheGroupsOwnDoingIsToldApart(t *testing.T) {
	f := newFakeV2(t, allThree)
	g, err := f.manager("0::/\n").Create("bx1", Limits{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for events, own := range map[string]bool{
		"max 0\noom 0\noom_kill 0":  false,
		"max 0\noom 0\noom_kill 1":  false,
		"max 90\noom 0\noom_kill 1": false, // it had been at its limit, and given memory back
		"max 90\noom 1\noom_kill 0": false,
		"max 90\noom 1\noom_kill 1": true,
	} {
		f.put(f.top+"/sunaba/bx1/memory.events", events)
		if got := stats(t, g).OutOfMemory(); got != own {
			t.Errorf("%q: out of memory %v, want %v", events, got, own)
		}
	}
}

func TestV2LimitThatDoesNotStickFailsAndLeavesNothing(t *testing.T) {
	for _, file := range []string{"memory.max", "memory.swap.max", "cpu.max", "pids.max"} {
		f := newFakeV2(t, allThree)
		f.drop = file
		_, err := f.manager("0::/\n").Create("bx1", Limits{Memory: 64 << 20, MilliCPU: 100, Pids: 8})
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s dropped: %v", file, err)
		}
		if _, err := os.Stat(f.top + "/sunaba"); !os.IsNotExist(err) {
			t.Errorf("%s dropped: sunaba is left", file)
		}
	}
}

func TestV2AddFailsIfTheKernelDidNotMove(t *testing.T) {
	f := newFakeV2(t, allThree)
	g, err := f.manager("0::/\n").Create("bx1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f.drop = "cgroup.procs"
	if err := g.Add(fakePID); err == nil {
		t.Error("a process that is not there counts as added")
	}
}

func TestV2MissingControllerIsNamed(t *testing.T) {
	f := newFakeV2(t, "cpu pids")
	m := f.manager("0::/\n")
	_, err := m.Create("bx1", Limits{Memory: 64 << 20})
	if box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), "memory") {
		t.Errorf("got %v", err)
	}
	g, err := m.Create("bx1", Limits{Memory: 64 << 20, Pids: 8, AllowMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	if w := g.Weak(); len(w) != 1 || !strings.HasPrefix(w[0], "memory limit is not enforced") {
		t.Errorf("weak is %q", w)
	}
	f.expect(t, f.top+"/sunaba/bx1/pids.max", "8")
}

// delegate makes the groups of a user session below a top that is root's.
func (f *fakeV2) delegate(t *testing.T, controllers string) string {
	t.Helper()
	own := f.top
	f.rootless = true
	f.put(f.top+"/cgroup.subtree_control", allThree)
	f.readOnly = append(f.readOnly, f.top)
	for _, name := range []string{"user.slice", "run-1.scope"} {
		own += "/" + name
		if err := os.Mkdir(own, 0o755); err != nil {
			t.Fatal(err)
		}
		f.populate(own, controllers)
	}
	f.readOnly = append(f.readOnly, f.top+"/user.slice")
	return own
}

func TestV2DelegatedGroupIsUsedAfterSteppingAside(t *testing.T) {
	f := newFakeV2(t, allThree)
	own := f.delegate(t, "cpu memory pids")
	f.put(own+"/cgroup.procs", strconv.Itoa(fakePID))
	m := f.manager("0::/user.slice/run-1.scope\n")
	g, err := m.Create("bx1", Limits{Memory: 64 << 20, MilliCPU: 100, Pids: 8})
	if err != nil {
		t.Fatal(err)
	}
	f.expect(t, own+"/sunaba-host/cgroup.procs", strconv.Itoa(fakePID))
	f.expect(t, own+"/sunaba/bx1/pids.max", "8")
	if err := g.Add(fakePID + 1); err != nil {
		t.Error(err)
	}

	// A second Detect sees the leaf as its own group and must not nest.
	again := f.manager("0::/user.slice/run-1.scope/sunaba-host\n")
	if names := list(t, again); len(names) != 1 || names[0] != "bx1" {
		t.Errorf("second manager lists %v", names)
	}
}

func TestV2DelegatedGroupWithOthersInItIsRefused(t *testing.T) {
	f := newFakeV2(t, allThree)
	own := f.delegate(t, "cpu memory pids")
	both := strconv.Itoa(fakePID) + "\n" + strconv.Itoa(fakePID+1)
	f.put(own+"/cgroup.procs", both)
	m := f.manager("0::/user.slice/run-1.scope\n")
	_, err := m.Create("bx1", Limits{Pids: 8})
	if box.KindOf(err) != box.Unusable || !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v", err)
	}
	var e *box.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "Delegate=yes") {
		t.Errorf("no way out is named: %+v", e)
	}
	f.expect(t, own+"/cgroup.procs", both)
	for _, s := range m.Probe(t.Context()) {
		if s.State == box.Works {
			t.Errorf("probe claims that %s works", s.Name)
		}
	}
}

func TestV2NothingWritableIsUnusable(t *testing.T) {
	f := newFakeV2(t, allThree)
	own := f.delegate(t, "cpu memory pids")
	f.readOnly = append(f.readOnly, own)
	m := f.manager("0::/user.slice/run-1.scope\n")
	for _, allow := range []bool{false, true} {
		if _, err := m.Create("bx1", Limits{Pids: 8, AllowMissing: allow}); box.KindOf(err) != box.Unusable {
			t.Errorf("allow %v: got %v", allow, err)
		}
	}
}

func TestV2ParentOfAnotherUserIsUnusable(t *testing.T) {
	f := newFakeV2(t, allThree)
	if _, err := f.manager("0::/\n").Create("bx1", Limits{Pids: 8}); err != nil {
		t.Fatal(err)
	}
	f.readOnly = append(f.readOnly, f.top, f.top+"/"+folder)
	if _, err := f.manager("0::/\n").Create("bx2", Limits{Pids: 8}); box.KindOf(err) != box.Unusable {
		t.Errorf("with another user's folder there: got %v", err)
	}
}

func TestV2OwnGroupOutsideTheNamespaceIsNotFollowed(t *testing.T) {
	f := newFakeV2(t, allThree)
	f.delegate(t, "cpu memory pids")
	m := f.manager("0::/../../user.slice\n")
	if _, err := m.Create("bx1", Limits{Pids: 8}); err == nil {
		t.Error("a path with .. was used")
	}
}
