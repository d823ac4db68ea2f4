package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

func TestAFrozenGroupStandsStillAndGoesOn(t *testing.T) {
	g := realGroup(t, realManager(t), Limits{})
	if err := g.CanFreeze(); err != nil {
		t.Skip(err)
	}
	count := filepath.Join(t.TempDir(), "count")
	shell(t, g, `while :; do echo x >>"$1"; sleep 0.005; done`, count)
	size := func() int64 {
		st, err := os.Stat(count)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	eventually(t, "a count", func() bool { return size() > 0 })
	standsStill(t, g, size)
}

// standsStill freezes a group whose processes make size grow, three times, and
// kills it as it stands.
func standsStill(t *testing.T, g *Group, size func() int64) {
	t.Helper()
	for range 3 {
		for range 2 { // the second is no error
			if err := g.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		at := size()
		<-time.After(100 * time.Millisecond)
		if size() != at {
			t.Errorf("it counted from %d to %d while frozen", at, size())
		}
		if f, err := g.Frozen(); !f || err != nil {
			t.Errorf("frozen: %v, %v", f, err)
		}
		if err := g.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f, err := g.Frozen(); f || err != nil {
			t.Errorf("thawed: frozen %v, %v", f, err)
		}
		eventually(t, "more of the count", func() bool { return size() > at })
	}
	if err := g.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error("frozen:", err)
	}
}

// slowV2 stands still after so many looks, or never.
type slowV2 struct {
	*fakeV2
	looks int
}

func (f *slowV2) Write(path, value string) error {
	err := f.fakeV2.Write(path, value)
	if filepath.Base(path) == "cgroup.freeze" && err == nil && value == "0" {
		f.put(filepath.Dir(path)+"/cgroup.events", "populated 1\nfrozen 0")
	}
	return err
}

func (f *slowV2) Read(path string) (string, error) {
	if filepath.Base(path) == "cgroup.events" {
		if f.looks--; f.looks == 0 {
			f.put(path, "populated 1\nfrozen 1")
		}
	}
	return f.fakeV2.Read(path)
}

func fakeGroup(t *testing.T, looks int) (*slowV2, *Group) {
	f := &slowV2{newFakeV2(t, "memory cpu pids"), looks}
	m := detect(f, "/", f.mountinfo(), "0::/\n", fakePID)
	g, err := m.Create("g", Limits{Pids: 8})
	if err != nil {
		t.Fatal(err)
	}
	f.looks = looks
	return f, g
}

func TestFreezingWaitsForTheKernelsWordInVersion2(t *testing.T) {
	f, g := fakeGroup(t, 4)
	if err := g.Freeze(t.Context()); err != nil || f.looks != 0 {
		t.Errorf("%v; %d looks were left", err, f.looks)
	}
	if is, err := g.Frozen(); !is || err != nil {
		t.Errorf("frozen: %v, %v", is, err)
	}
	if err := g.Thaw(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatDoesNotFreezeIsLetGoAndToldOf(t *testing.T) {
	f, g := fakeGroup(t, -1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.Freeze(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if is, err := g.Frozen(); is || err != nil {
		t.Errorf("frozen: %v, %v", is, err)
	}
	f.drop = "cgroup.freeze"
	f.put(g.dirs[0].path+"/cgroup.freeze", "1")
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.Thaw(ctx); err == nil {
		t.Error("thawed a group that stays frozen")
	}
}

func TestWithoutAFreezerTheReasonIsTold(t *testing.T) {
	_, g := fakeGroup(t, 1)
	if err := os.Remove(g.dirs[0].path + "/cgroup.freeze"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"ask": g.CanFreeze(), "freeze": g.Freeze(t.Context()), "thaw": g.Thaw(t.Context())} {
		if box.KindOf(err) != box.Unsupported {
			t.Errorf("%s: %v", what, err)
		}
	}
	if is, err := g.Frozen(); is || err != nil {
		t.Errorf("frozen: %v, %v", is, err)
	}
}

// fakeV1 is a freezer of version 1 that takes a second write to get there.
type fakeV1 struct {
	kernelFS
	wrote []string
	deaf  bool
}

func (f *fakeV1) Write(path, value string) error {
	if filepath.Base(path) != "freezer.state" {
		return fmt.Errorf("write to %s: %w", path, unix.ENOENT)
	}
	f.wrote = append(f.wrote, value)
	return nil
}

func (f *fakeV1) Read(string) (string, error) {
	n := len(f.wrote)
	switch {
	case n == 0 || f.wrote[n-1] == "THAWED":
		return "THAWED", nil
	case n < 2 || f.deaf:
		return "FREEZING", nil
	}
	return "FROZEN", nil
}

func TestFreezingOfVersion1IsRepeatedUntilAllStands(t *testing.T) {
	f := &fakeV1{}
	tr := &tree{version: 1, base: "/f", controllers: []string{"freezer"}}
	g := &Group{m: &Manager{fs: f, trees: []*tree{tr}}, name: "g", dirs: []dir{{tr, "/f/sunaba/g"}}}
	if err := g.Freeze(t.Context()); err != nil || len(f.wrote) != 2 {
		t.Errorf("%v after %v", err, f.wrote)
	}
	if err := g.Thaw(t.Context()); err != nil {
		t.Error(err)
	}
	f.deaf = true
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.Freeze(ctx); err == nil || f.wrote[len(f.wrote)-1] != "THAWED" {
		t.Errorf("%v after %v", err, f.wrote)
	}
}
