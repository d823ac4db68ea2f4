package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// forest keeps forking: each generation leaves sleepers and ignores signals.
const forest = `trap '' TERM INT HUP; while :; do (sleep 600 & sleep 600 & exec sleep 0.01); done`

func TestKillEndsAForkTree(t *testing.T) {
	m := realManager(t)
	for _, how := range []string{"plain", "frozen in its own tree", "without cgroup.kill"} {
		t.Run(how, func(t *testing.T) {
			m := m
			if how == "without cgroup.kill" {
				m = &Manager{fs: noKill{m.fs}, trees: m.trees}
			}
			g := realGroup(t, m, Limits{Pids: 400})
			shell(t, g, forest)
			eventually(t, "20 processes", func() bool { return len(procs(t, g)) >= 20 })
			if how == "frozen in its own tree" {
				g.freeze(t.Context())
			}
			if err := g.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := procs(t, g); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// noKill is a host before Linux 5.14.
type noKill struct{ fsys }

func (f noKill) Write(path, value string) error {
	if strings.HasSuffix(path, "/cgroup.kill") {
		return fs.ErrNotExist
	}
	return f.fsys.Write(path, value)
}

func procs(t *testing.T, g *Group) []int {
	t.Helper()
	pids, err := g.Procs()
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

func TestKillAndRemoveReachGroupsBelow(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{})
	cmd := shell(t, g, "sleep 600")
	for _, d := range g.dirs {
		if err := os.MkdirAll(d.path+"/a/b", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.path+"/a/b/cgroup.procs", fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	if p := procs(t, g); !slices.Contains(p, cmd.Process.Pid) {
		t.Errorf("processes %v do not include %d", p, cmd.Process.Pid)
	}
	// finish kills, removes and checks.
}

func TestRemoveOfALiveGroupIsBounded(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{})
	shell(t, g, "sleep 600")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.Remove(ctx); err == nil {
		t.Error("a group with a process in it was removed")
	}
}

func TestAddRefusesWhatItCannotConfirm(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{})
	gone := exec.Command("/bin/true")
	gone.Env = []string{}
	if err := gone.Run(); err != nil {
		t.Skip(err)
	}
	for _, pid := range []int{0, -1, gone.Process.Pid} {
		if err := g.Add(pid); err == nil {
			t.Errorf("Add(%d) worked", pid)
		}
	}
}

func TestParallelCreatesHoldOnlyTheirOwn(t *testing.T) {
	m := realManager(t)
	var wg sync.WaitGroup
	groups := make([]*Group, 8)
	mine := make([]int, 8)
	for i := range groups {
		groups[i] = realGroup(t, m, Limits{Memory: 64 << 20, MilliCPU: 100, Pids: 8})
	}
	for i, g := range groups {
		cmd := exec.Command("/bin/sleep", "600")
		cmd.Env = []string{}
		t.Cleanup(func() { // before finish: the group goes when its process is dead
			if cmd.Process != nil {
				cmd.Process.Kill()
				cmd.Wait()
			}
		})
		wg.Go(func() {
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			mine[i] = cmd.Process.Pid
			if err := g.Add(cmd.Process.Pid); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, g := range groups {
		if got := procs(t, g); !slices.Equal(got, []int{mine[i]}) {
			t.Errorf("group %d holds %v, want only %d", i, got, mine[i])
		}
	}
}

// The folder sunaba/ comes and goes under the others' hands.
func TestConcurrentCreateAndRemove(t *testing.T) {
	m := realManager(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				g, err := m.Create(string(box.NewID()), Limits{Memory: 64 << 20, MilliCPU: 100, Pids: 8})
				if err != nil {
					t.Error(err)
					return
				}
				if err := g.Remove(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestNameInUseIsRefusedAndLeftAlone(t *testing.T) {
	m := realManager(t)
	g := realGroup(t, m, Limits{Pids: 8})
	if _, err := m.Create(g.Name(), Limits{Pids: 9}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want fs.ErrExist", err)
	}
	if n, err := g.readInt(must(g.dir("pids")), "pids.max"); n != 8 || err != nil {
		t.Errorf("the first group's limit is now %d, %v", n, err)
	}
	if !slices.Contains(list(t, m), g.Name()) {
		t.Error("List does not name the group")
	}
	again, err := m.Open(g.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.SetMemory(32 << 20); err != nil {
		t.Error(err)
	}
	if _, err := m.Open("no-such-group"); box.KindOf(err) != box.NotFound {
		t.Errorf("Open of nothing: %v", err)
	}
}

func must(d dir, ok bool) dir {
	if !ok {
		panic("no such folder")
	}
	return d
}

func TestNamesThatCouldLeaveTheFolderAreRefused(t *testing.T) {
	m := realManager(t)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "cgroup.procs", "a\nb", strings.Repeat("a", 65)} {
		if _, err := m.Create(name, Limits{}); box.KindOf(err) != box.Invalid {
			t.Errorf("Create(%q): %v", name, err)
		}
		if _, err := m.Open(name); err == nil {
			t.Errorf("Open(%q) worked", name)
		}
	}
}

func TestCloneIntoGroup(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{})
	f, err := g.FD()
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	cmd := exec.Command("/bin/sleep", "600")
	cmd.Env = []string{}
	cmd.SysProcAttr = intoGroup(f)
	if err := cmd.Start(); err != nil {
		t.Skipf("clone3 into a group is not possible here: %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if p := procs(t, g); !slices.Contains(p, cmd.Process.Pid) {
		t.Errorf("processes %v, want %d", p, cmd.Process.Pid)
	}
}
