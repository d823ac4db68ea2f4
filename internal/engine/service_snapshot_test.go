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
)

// copying is what a plainBox has to be copied, and what goes wrong then.
type copying struct {
	holds   atomic.Value // string
	cannot  map[box.SnapshotKind]error
	fails   error
	midway  func() // called when one part is written
	claims  box.SnapshotKind
	copied  atomic.Int32
	unready error // found wrong while it was copied
}

func (b *plainBox) has() string {
	s, _ := b.holds.Load().(string)
	return s
}

func (b *plainBox) Snappable(kind box.SnapshotKind) error { return b.cannot[kind] }

func (b *plainBox) Snapshot(_ context.Context, kind box.SnapshotKind, put func(string, io.Reader) error) (box.SnapshotHead, error) {
	b.copied.Add(1)
	switch memory := kind == box.SnapshotMemory; {
	case memory != b.parked.Load():
		b.unready = errors.New("its streams are open, or closed for nothing")
	case memory && b.still.Load():
		b.unready = errors.New("it is paused, so its agent cannot have closed them")
	}
	if err := put("first", strings.NewReader(b.has())); err != nil {
		return box.SnapshotHead{}, errors.Join(errors.New("cannot write"), err)
	}
	if b.midway != nil {
		b.midway()
	}
	if b.fails != nil {
		return box.SnapshotHead{}, b.fails
	}
	if b.claims != "" {
		kind = b.claims
	}
	return box.SnapshotHead{Kind: kind, Tier: b.t.name, Needs: map[string]string{"image": "1"}}, put("second", strings.NewReader("x"))
}

// apart is what a plainAgent has of its streams' end.
type apart struct {
	parked    atomic.Bool
	parkFails error
	told      atomic.Int32 // that it will stand still
	renewals  []box.Renewal
	renewErr  error
}

func (a *plainAgent) Park(context.Context) error {
	a.parked.Store(true)
	return a.parkFails
}
func (a *plainAgent) Hold(context.Context) error {
	a.told.Add(1)
	return nil
}
func (a *plainAgent) Unpark() { a.parked.Store(false) }
func (a *plainAgent) Renew(_ context.Context, r box.Renewal) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renewals = append(a.renewals, r)
	return a.renewErr
}

// holding makes a box that holds a text.
func (b *bench) holding(text string, req box.CreateRequest) box.Info {
	b.t.Helper()
	i := b.make(req)
	b.host(i.ID).holds.Store(text)
	return i
}

func (b *bench) snap(id box.ID, req box.SnapshotRequest) box.SnapshotInfo {
	b.t.Helper()
	i, err := b.Snapshot(b.t.Context(), alice(), id, req)
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

func (b *bench) files() []string {
	b.t.Helper()
	e, err := os.ReadDir(filepath.Join(b.dir, "snapshots"))
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, f := range e {
		out = append(out, f.Name())
	}
	return out
}

func TestSnapshotsAreTheirTenantsAlone(t *testing.T) {
	b := newBench(t, nil)
	i := b.holding("text", box.CreateRequest{})
	s := b.snap(i.ID, box.SnapshotRequest{Name: "a"})
	eve := box.Caller{Tenant: "b", Principal: "eve", Scopes: box.Scopes()}
	none, nobody := "sha256:"+strings.Repeat("0", 64), box.NewID()
	for what, ask := range map[string]func(ref string, id box.ID) error{
		"inspect": func(ref string, _ box.ID) error { _, err := b.InspectSnapshot(t.Context(), eve, ref); return err },
		"delete":  func(ref string, _ box.ID) error { return b.DeleteSnapshot(t.Context(), eve, ref) },
		"create": func(ref string, _ box.ID) error {
			_, err := b.Create(t.Context(), eve, box.CreateRequest{Snapshot: ref})
			return err
		},
		"snapshot": func(_ string, id box.ID) error {
			_, err := b.Snapshot(t.Context(), eve, id, box.SnapshotRequest{})
			return err
		},
		"fork": func(_ string, id box.ID) error {
			_, err := b.Fork(t.Context(), eve, id, box.ForkRequest{Count: 1})
			return err
		},
	} {
		theirs, nothing := ask(s.ID, i.ID), ask(none, nobody)
		if box.KindOf(theirs) != box.NotFound || nothing == nil {
			t.Fatalf("%s: %v, %v", what, theirs, nothing)
		}
		if like := strings.NewReplacer(none, s.ID, string(nobody), string(i.ID)).Replace(nothing.Error()); theirs.Error() != like {
			t.Errorf("%s: %q is told from %q", what, theirs, like)
		}
	}
	if all, _, err := b.Snapshots(t.Context(), eve, box.ListSnapshots{}); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	// The same name is free for another tenant.
	other, err := b.Create(t.Context(), eve, box.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Snapshot(t.Context(), eve, other.ID, box.SnapshotRequest{Name: "a"}); err != nil {
		t.Error(err)
	}
	weak := box.Caller{Tenant: "a", Scopes: []box.Scope{box.ScopeRead, box.ScopeExec}}
	if _, err := b.Snapshot(t.Context(), weak, i.ID, box.SnapshotRequest{}); box.KindOf(err) != box.Denied {
		t.Error(err)
	}
	if _, err := b.Fork(t.Context(), weak, i.ID, box.ForkRequest{Count: 1}); box.KindOf(err) != box.Denied {
		t.Error(err)
	}
}

func TestSnapshotsAreListedDeletedAndBounded(t *testing.T) {
	b := newBench(t, nil)
	one, two := b.holding("1", box.CreateRequest{}), b.holding("2", box.CreateRequest{})
	var all []string
	for n := range 5 {
		id := one.ID
		if n == 2 {
			id = two.ID
		}
		all = append(all, b.snap(id, box.SnapshotRequest{}).ID)
	}
	if _, err := b.Snapshot(t.Context(), alice(), one.ID, box.SnapshotRequest{}); box.KindOf(err) != box.Exhausted {
		t.Errorf("a sixth of five: %v", err)
	}
	var got []string
	for r := (box.ListSnapshots{Limit: 2}); ; {
		page, next, err := b.Snapshots(t.Context(), alice(), r)
		if err != nil || len(page) > 2 {
			t.Fatal(page, err)
		}
		for _, s := range page {
			got = append(got, s.ID)
		}
		if r.Cursor = next; next == "" {
			break
		}
	}
	if slices.Sort(got); len(got) != 5 || !slices.Equal(got, slices.Sorted(slices.Values(all))) {
		t.Errorf("%v, want %v", got, all)
	}
	if page, _, err := b.Snapshots(t.Context(), alice(), box.ListSnapshots{Box: two.ID}); err != nil || len(page) != 1 || page[0].ID != all[2] {
		t.Errorf("%v, %v", page, err)
	}
	for _, r := range []box.ListSnapshots{{Limit: -1}, {Limit: 1001}, {Cursor: "x"}, {Cursor: "eA"}} {
		if _, _, err := b.Snapshots(t.Context(), alice(), r); box.KindOf(err) != box.Invalid {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, id := range all {
		if err := b.DeleteSnapshot(t.Context(), alice(), id); err != nil {
			t.Error(err)
		}
		if err := b.DeleteSnapshot(t.Context(), alice(), id); box.KindOf(err) != box.NotFound {
			t.Errorf("twice: %v", err)
		}
	}
	if left := b.files(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestARequestForASnapshotIsUnderstoodOrRefused(t *testing.T) {
	b := newBench(t, nil)
	i := b.holding("1", box.CreateRequest{})
	b.snap(i.ID, box.SnapshotRequest{Name: "a.b_c-1"})
	for req, kind := range map[box.SnapshotRequest]box.Kind{
		{Name: "a.b_c-1"}:               box.Conflict,
		{Name: "A"}:                     box.Invalid,
		{Name: ".."}:                    box.Invalid, // no address of it would be left alone on its way
		{Name: "--help"}:                box.Invalid,
		{Name: "sha256:x"}:              box.Invalid,
		{Name: strings.Repeat("a", 65)}: box.Invalid,
		{Kind: "disk"}:                  box.Invalid,
	} {
		before := b.host(i.ID).copied.Load()
		if _, err := b.Snapshot(t.Context(), alice(), i.ID, req); box.KindOf(err) != kind || b.host(i.ID).copied.Load() != before {
			t.Errorf("%+v: %v", req, err)
		}
	}
	_, err := b.Create(t.Context(), alice(), box.CreateRequest{Snapshot: "a.b_c-1", Sandbox: json.RawMessage(`{}`)})
	if box.KindOf(err) != box.Invalid || b.tier.count() != 1 {
		t.Error(err)
	}
}

// What goes wrong leaves the box as it was, and nothing kept.
func TestASnapshotThatFailsLeavesNothing(t *testing.T) {
	reason := box.Errorf(box.Unsupported, "x", "cannot: its tier has no words for it")
	for name, c := range map[string]struct {
		change func(*bench, *plainBox)
		kind   box.Kind
	}{
		"cannot be copied": {func(_ *bench, h *plainBox) { h.cannot = map[box.SnapshotKind]error{box.SnapshotMemory: reason} }, box.Unsupported},
		"fails":            {func(_ *bench, h *plainBox) { h.fails = box.Errorf(box.Unavailable, "x", "cannot read the box") }, box.Unavailable},
		"does not park":    {func(_ *bench, h *plainBox) { h.parkFails = box.Errorf(box.Unavailable, "x", "cannot reach it") }, box.Unavailable},
		"is too large":     {func(_ *bench, h *plainBox) { h.holds.Store(strings.Repeat("x", 1<<20+1)) }, box.Exhausted},
		"is another":       {func(_ *bench, h *plainBox) { h.claims = box.SnapshotFiles }, box.Fault},
		"is destroyed": {func(b *bench, h *plainBox) {
			h.midway = func() { b.Destroy(context.Background(), alice(), h.id) }
			h.fails = errors.New("it is gone")
		}, box.NotFound},
		"has no row":         {func(b *bench, _ *plainBox) { b.fullOf("INSERT ON snapshots") }, box.Fault},
		"was made by an old": {func(b *bench, h *plainBox) { b.lookup(h.id).kept.Sandbox = nil }, box.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			i := b.holding("text", box.CreateRequest{})
			h := b.host(i.ID)
			c.change(b, h)
			if _, err := b.Snapshot(t.Context(), alice(), i.ID, box.SnapshotRequest{Kind: box.SnapshotMemory}); box.KindOf(err) != c.kind {
				t.Errorf("%s: %v", box.KindOf(err), err)
			}
			if left := b.files(); len(left) != 0 || h.parked.Load() {
				t.Errorf("left: %v; parked: %v", left, h.parked.Load())
			}
			if name == "is destroyed" {
				return
			}
			if _, err := b.Pause(t.Context(), alice(), i.ID); err != nil { // its turn is free
				t.Error(err)
			}
		})
	}
}

// fullOf makes a change of a table fail, as a full disk does.
func (b *bench) fullOf(what string) {
	b.t.Helper()
	db, err := b.database()
	if err == nil {
		_, err = db.Exec("CREATE TRIGGER full BEFORE " + what + " BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
	}
	if err = errors.Join(err, db.Close()); err != nil {
		b.t.Fatal(err)
	}
}

// An agent can make the copying of its box take long: only its tenant waits for that.
func TestATenantWhoseCopiesHangLeavesOthersATurn(t *testing.T) {
	b := newBench(t, nil)
	hang, begun := make(chan struct{}), make(chan struct{}, 9)
	var all sync.WaitGroup
	for range 4 {
		i := b.holding("text", box.CreateRequest{})
		b.host(i.ID).midway = func() { begun <- struct{}{}; <-hang }
		all.Go(func() {
			if _, err := b.Snapshot(t.Context(), alice(), i.ID, box.SnapshotRequest{Kind: box.SnapshotMemory}); err != nil {
				t.Error(err)
			}
		})
	}
	<-begun
	<-begun // all that one tenant may have
	other := alice()
	other.Tenant = "another"
	i, err := b.Create(t.Context(), other, box.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b.host(i.ID).holds.Store("text")
	for _, kind := range box.SnapshotKinds() {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		if _, err := b.Snapshot(ctx, other, i.ID, box.SnapshotRequest{Kind: kind}); err != nil {
			t.Errorf("while another's boxes are copied: %v", err)
		}
	}
	close(hang)
	all.Wait()
}

// What is left of a tenant's bytes bounds the copying, too: no disk is filled first.
func TestASnapshotFitsIntoWhatItsTenantHasLeft(t *testing.T) {
	b := newBench(t, nil)
	b.Service.cfg.MaxSnapshotBytes = 1 << 20
	i := b.holding(strings.Repeat("x", 700<<10), box.CreateRequest{})
	b.snap(i.ID, box.SnapshotRequest{Name: "first"})
	h := b.host(i.ID)
	h.midway = func() { t.Error("a part that has no room was written to its end") }
	if _, err := b.Snapshot(t.Context(), alice(), i.ID, box.SnapshotRequest{}); box.KindOf(err) != box.Exhausted {
		t.Error(err)
	}
	h.midway = nil
	if err := b.DeleteSnapshot(t.Context(), alice(), "first"); err != nil {
		t.Fatal(err)
	}
	b.snap(i.ID, box.SnapshotRequest{})
}

// A tenant's room is looked at again when the turn has come: what others of its
// requests have filled since is not copied for nothing.
func TestACopyThatFindsNoRoomAnyMoreIsNotMade(t *testing.T) {
	b := newBench(t, nil)
	i := b.holding("text", box.CreateRequest{})
	for range b.conf.MaxSnapshots - 1 {
		b.snap(i.ID, box.SnapshotRequest{})
	}
	h := b.host(i.ID)
	h.copied.Store(0)
	hang, begun := make(chan struct{}), make(chan struct{}, 9)
	h.midway = func() { begun <- struct{}{}; <-hang }
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := b.Snapshot(t.Context(), alice(), i.ID, box.SnapshotRequest{})
			errs <- err
		}()
	}
	<-begun
	close(hang)
	made := 0
	for range cap(errs) {
		switch err := <-errs; {
		case err == nil:
			made++
		case box.KindOf(err) != box.Exhausted:
			t.Error(err)
		}
	}
	// The second turn may have come before the first copy had its row.
	if n := h.copied.Load(); made != 1 || n > 2 {
		t.Errorf("%d snapshots of %d copies", made, n)
	}
}

func TestAPausedBoxIsCopiedAndStaysPaused(t *testing.T) {
	for _, kind := range box.SnapshotKinds() {
		b := newBench(t, nil)
		i := b.holding("text", box.CreateRequest{})
		if _, err := b.Pause(t.Context(), alice(), i.ID); err != nil {
			t.Fatal(err)
		}
		s := b.snap(i.ID, box.SnapshotRequest{Kind: kind})
		if h := b.host(i.ID); h.unready != nil || !h.still.Load() || h.parked.Load() {
			t.Errorf("%s: %v, still %v, parked %v", kind, h.unready, h.still.Load(), h.parked.Load())
		}
		b.phase(i.ID, box.PhasePaused)
		if c := b.make(box.CreateRequest{Snapshot: s.ID}); c.Phase != box.PhaseRunning {
			t.Errorf("%+v", c)
		}
	}
}

func TestAStartLeavesNoFilesWithoutARow(t *testing.T) {
	b := newBench(t, nil)
	i := b.holding("text", box.CreateRequest{})
	s := b.snap(i.ID, box.SnapshotRequest{})
	names := b.files()
	d := b.conf.Snapshots.Begin(100) // as a daemon that is killed before the row
	if err := d.Put("a", strings.NewReader("half")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Keep(box.SnapshotHead{Kind: box.SnapshotFiles, Tier: box.TierGvisor}, i.ID, time.Now()); err != nil {
		t.Fatal(err)
	}
	b.again()
	if left := b.files(); !slices.Equal(left, names) {
		t.Errorf("left %v, want %v", left, names)
	}
	b.make(box.CreateRequest{Snapshot: s.ID})
}

func TestWhatWasAskedForIsForgottenAtTheEnd(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{Sandbox: json.RawMessage(`{"env":{"TOKEN":"hidden"}}`)})
	b.tier.create = func(box.Spec) error { return errors.New("no room") }
	_, err := b.Create(t.Context(), alice(), box.CreateRequest{Sandbox: json.RawMessage(`{"env":{"TOKEN":"hidden"}}`)})
	if err == nil {
		t.Fatal("made")
	}
	if err := b.Destroy(t.Context(), alice(), i.ID); err != nil {
		t.Fatal(err)
	}
	all, _, err := b.List(t.Context(), alice(), box.ListRequest{Destroyed: true})
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for _, i := range all {
		if r, err := b.st.Box(t.Context(), "a", i.ID); err != nil || strings.Contains(string(r.Spec), "hidden") || i.Policy.Workdir == "" {
			t.Errorf("%v, %s", err, r.Spec)
		}
	}
}
