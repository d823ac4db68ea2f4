package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// restoring is how a plainTier makes boxes of copies.
type restoring struct {
	renewErr error // of the boxes to come
	together int32 // so many are waited for, which are made at once
	fails    func(box.Spec) error
	most     atomic.Int32 // at once
	now      atomic.Int32
}

func (t *plainTier) Restore(ctx context.Context, spec box.Spec, sn *box.Snapshot) (box.Box, error) {
	n := t.again.now.Add(1)
	defer t.again.now.Add(-1)
	for m := t.again.most.Load(); n > m && !t.again.most.CompareAndSwap(m, n); m = t.again.most.Load() {
	}
	for end := time.Now().Add(longest); t.again.most.Load() < t.again.together && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(5 * time.Millisecond)
	if t.again.fails != nil {
		if err := t.again.fails(spec); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(sn.Parts["first"])
	if err != nil {
		return nil, err
	}
	b, err := t.Create(ctx, spec)
	if err == nil {
		b.(*plainBox).holds.Store(string(text))
		b.(*plainBox).renewErr = t.again.renewErr
	}
	return b, err
}

func gateOf(boxes int64) *tenant.Gate {
	return tenant.NewGate(tenant.Rules{Share: tenant.Amounts{Boxes: boxes}, Starts: 100, Line: 100, Wait: longest})
}

func TestABoxIsMadeFromASnapshot(t *testing.T) {
	for _, kind := range box.SnapshotKinds() {
		b := newBench(t, nil)
		first := b.holding("text", box.CreateRequest{Sandbox: json.RawMessage(`{"env":{"A":"<1>"},"user":"root","resource_limits":{"memory":"64m"}}`)})
		s := b.snap(first.ID, box.SnapshotRequest{Name: "a", Kind: kind})
		if s.Kind != kind || s.Name != "a" || s.Tier != first.Tier || s.Box != first.ID || s.Bytes != 5 || s.Image != first.Image || !strings.HasPrefix(s.ID, "sha256:") {
			t.Errorf("%+v", s)
		}
		if h := b.host(first.ID); h.unready != nil || h.parked.Load() {
			t.Errorf("%v; parked: %v", h.unready, h.parked.Load())
		} else if h.told.Load() != 1 || len(h.renewals) != 1 || h.renewals[0].Copy || h.renewals[0].Slept <= 0 {
			t.Errorf("told %d times that it stands; then %+v", h.told.Load(), h.renewals)
		}
		b.host(first.ID).holds.Store("something else")
		b.again()
		if err := b.Destroy(t.Context(), alice(), first.ID); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{"a", s.ID} {
			i := b.make(box.CreateRequest{Snapshot: ref, Metadata: map[string]string{"k": "v"}})
			if i.Start != box.StartRestored || !strings.Contains(i.StartReason, s.ID) || i.Policy.Limits != first.Policy.Limits || i.Policy.User != box.UserRoot || i.Metadata["k"] != "v" {
				t.Errorf("%+v", i)
			}
			h := b.host(i.ID)
			if h.has() != "text" {
				t.Errorf("it holds %q", h.has())
			}
			if want := kind == box.SnapshotMemory; len(h.renewals) > 1 || (len(h.renewals) == 1 && h.renewals[0].Copy) != want {
				t.Errorf("%s: renewed %+v", kind, h.renewals)
			}
			if _, err := b.guest(i.ID).Start(t.Context(), box.ProcessSpec{Command: box.Command{Argv: []string{"x"}}}); err != nil || !slices.Contains(h.started[0].Env, "A=<1>") {
				t.Errorf("%v, %+v", err, h.started)
			}
			// And one of that one.
			again := b.snap(i.ID, box.SnapshotRequest{Kind: kind})
			if i := b.make(box.CreateRequest{Snapshot: again.ID}); b.host(i.ID).has() != "text" || i.Policy.User != box.UserRoot {
				t.Errorf("%+v", i)
			}
		}
	}
}

func TestADamagedSnapshotMakesNoBox(t *testing.T) {
	b := newBench(t, nil)
	i := b.holding("text", box.CreateRequest{})
	s, whole := b.snap(i.ID, box.SnapshotRequest{}), b.snap(i.ID, box.SnapshotRequest{})
	manifest := filepath.Join(b.dir, "snapshots", s.ID[7:]+".json")
	if err := os.Rename(manifest, manifest+"~"); err != nil {
		t.Fatal(err)
	}
	_, err := b.InspectSnapshot(t.Context(), alice(), s.ID)
	if box.KindOf(err) != box.Unusable || !strings.Contains(err.Error(), s.ID) {
		t.Errorf("inspect: %v", err)
	}
	_, err = b.Create(t.Context(), alice(), box.CreateRequest{Snapshot: s.ID})
	if e := (*box.Error)(nil); box.KindOf(err) != box.Unusable || !errors.As(err, &e) || e.Hint == "" || !strings.Contains(err.Error(), s.ID) {
		t.Errorf("create: %v", err)
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 1 || b.tier.count() != 1 {
		t.Errorf("%d of the share, %d on the host", used.Boxes, b.tier.count())
	}
	b.make(box.CreateRequest{Snapshot: whole.ID})
	if err := b.DeleteSnapshot(t.Context(), alice(), s.ID); err != nil {
		t.Error(err)
	}
}

func TestAnotherTierThanTheSnapshotsIsRefused(t *testing.T) {
	b := newBench(t, nil)
	i := b.holding("text", box.CreateRequest{Sandbox: json.RawMessage(`{"trust":"trusted"}`)})
	s := b.snap(i.ID, box.SnapshotRequest{})
	b.tier.name = box.TierProcess // the only one in this build now
	_, err := b.Create(t.Context(), alice(), box.CreateRequest{Snapshot: s.ID})
	if box.KindOf(err) != box.Conflict || !strings.Contains(err.Error(), "gvisor") || !strings.Contains(err.Error(), "process") {
		t.Error(err)
	}
}

func TestAKeyForABoxOfASnapshotMeansOneBox(t *testing.T) {
	b := newBench(t, nil)
	i := b.holding("text", box.CreateRequest{})
	s, other := b.snap(i.ID, box.SnapshotRequest{}), b.snap(i.ID, box.SnapshotRequest{})
	first := b.make(box.CreateRequest{Snapshot: s.ID, Key: "k"})
	if err := b.DeleteSnapshot(t.Context(), alice(), s.ID); err != nil {
		t.Fatal(err)
	}
	if again := b.make(box.CreateRequest{Snapshot: s.ID, Key: "k"}); again.ID != first.ID {
		t.Errorf("%s is not %s", again.ID, first.ID)
	}
	for _, req := range []box.CreateRequest{{Snapshot: other.ID, Key: "k"}, {Key: "k"}} {
		if _, err := b.Create(t.Context(), alice(), req); box.KindOf(err) != box.Invalid {
			t.Errorf("%+v: %v", req, err)
		}
	}
	// One that failed may be tried again.
	if _, err := b.Create(t.Context(), alice(), box.CreateRequest{Snapshot: "later", Key: "l"}); box.KindOf(err) != box.NotFound {
		t.Error(err)
	}
	b.snap(i.ID, box.SnapshotRequest{Name: "later"})
	b.make(box.CreateRequest{Snapshot: "later", Key: "l"})
}

func TestACopyThatCannotBeRenewedIsNobodys(t *testing.T) {
	for kind, given := range map[box.Kind]bool{box.Unsupported: true, box.Unavailable: false} {
		b := newBench(t, nil)
		i := b.holding("text", box.CreateRequest{})
		s := b.snap(i.ID, box.SnapshotRequest{Kind: box.SnapshotMemory})
		b.tier.again.renewErr = box.Errorf(kind, "renew", "cannot renew")
		c, err := b.Create(t.Context(), alice(), box.CreateRequest{Snapshot: s.ID})
		if given != (err == nil) || !given && (box.KindOf(err) != kind || b.tier.count() != 1) {
			t.Errorf("%s: %v, %+v, %d on the host", kind, err, c, b.tier.count())
		}
	}
}

func TestForksAreBoxesOfTheirOwn(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Gate = gateOf(0) })
	i := b.holding("text", box.CreateRequest{Metadata: map[string]string{"k": "v"}, Idle: time.Hour, Sandbox: json.RawMessage(`{"user":"root"}`)})
	b.tier.again.together = 2
	all, err := b.Fork(t.Context(), alice(), i.ID, box.ForkRequest{Count: 9, TTL: 2 * time.Hour})
	if err != nil || len(all) != 9 {
		t.Fatal(all, err)
	}
	ids := map[box.ID]bool{i.ID: true}
	for _, f := range all {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		ids[f.Info.ID] = true
		h := b.host(f.Info.ID)
		if h.has() != "text" || len(h.renewals) != 1 || f.Info.Start != box.StartRestored || !strings.Contains(f.Info.StartReason, string(i.ID)) ||
			f.Info.Metadata["k"] != "v" || f.Info.Idle != time.Hour || f.Info.Ends.Sub(f.Info.Created) != 2*time.Hour || f.Info.Policy.User != box.UserRoot {
			t.Errorf("%+v", f.Info)
		}
	}
	if h := b.host(i.ID); len(ids) != 10 || h.copied.Load() != 1 || h.parked.Load() || h.unready != nil {
		t.Errorf("%d boxes of %d copies; parked %v; %v", len(ids), h.copied.Load(), h.parked.Load(), h.unready)
	}
	if n := b.tier.again.most.Load(); n > forksStarted || n < 2 {
		t.Errorf("%d at once", n)
	}
	if left := b.files(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	// A fork of a fork.
	if more, err := b.Fork(t.Context(), alice(), all[3].Info.ID, box.ForkRequest{Count: 1, Metadata: map[string]string{}}); err != nil || more[0].Err != nil || len(more[0].Info.Metadata) != 0 {
		t.Errorf("%+v, %v", more, err)
	}
}

func TestForksFailOneByOne(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Gate = gateOf(8) })
	i := b.holding("text", box.CreateRequest{})
	var mu sync.Mutex
	made := 0
	b.tier.again.fails = func(box.Spec) error {
		mu.Lock()
		defer mu.Unlock()
		if made++; made == 2 {
			return box.Errorf(box.Fault, "restore", "cannot restore: it was the second")
		}
		return nil
	}
	all, err := b.Fork(t.Context(), alice(), i.ID, box.ForkRequest{Count: 12})
	if err != nil || len(all) != 12 {
		t.Fatal(all, err)
	}
	kinds := map[box.Kind]int{}
	for _, f := range all {
		if f.Err != nil {
			kinds[box.KindOf(f.Err)]++
			continue
		}
		kinds[""]++
	}
	used, _ := b.conf.Gate.Used("a")
	// The one that failed gives its share back, maybe to another.
	if kinds[box.Fault] != 1 || kinds[""] < 6 || kinds[""] > 7 || kinds[""]+kinds[box.Exhausted] != 11 || int(used.Boxes) != kinds[""]+1 || b.tier.count() != kinds[""]+1 {
		t.Errorf("%v; %d of the share; %d on the host", kinds, used.Boxes, b.tier.count())
	}
	b.tier.again.fails = nil
	for _, n := range []int{0, -1, 101} {
		if _, err := b.Fork(t.Context(), alice(), i.ID, box.ForkRequest{Count: n}); box.KindOf(err) != box.Invalid {
			t.Errorf("%d: %v", n, err)
		}
	}
	b.host(i.ID).cannot = map[box.SnapshotKind]error{box.SnapshotMemory: box.Errorf(box.Unsupported, "x", "cannot: there is no kernel to ask")}
	if _, err := b.Fork(t.Context(), alice(), i.ID, box.ForkRequest{Count: 1}); box.KindOf(err) != box.Unsupported || !strings.Contains(err.Error(), "no kernel") {
		t.Error(err)
	}
}
