package client_test

import (
	"slices"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

func TestSnapshotsAreWhatTheDaemonSays(t *testing.T) {
	_, url := daemon(t)
	c, ctx := dial(t, url, servertest.Key), t.Context()
	i, g := made(t, c)
	if _, err := g.MakeDir(ctx, "/workspace/d", box.MakeDirOptions{}); err != nil {
		t.Fatal(err)
	}
	first, err := c.Snapshot(ctx, box.Caller{}, i.ID, box.SnapshotRequest{Name: "a", Kind: box.SnapshotMemory})
	if err != nil || first.Name != "a" || first.Kind != box.SnapshotMemory || first.Box != i.ID || first.Created.IsZero() || first.Bytes == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := c.Snapshot(ctx, box.Caller{}, i.ID, box.SnapshotRequest{Name: "a"}); box.KindOf(err) != box.Conflict {
		t.Errorf("the same name: %v", err)
	}
	want := []string{first.ID}
	for range 4 {
		s, err := c.Snapshot(ctx, box.Caller{}, i.ID, box.SnapshotRequest{})
		if err != nil || s.Kind != box.SnapshotFiles {
			t.Fatalf("%+v, %v", s, err)
		}
		want = append(want, s.ID)
	}
	slices.Reverse(want) // newest first
	var got []string
	for r := (box.ListSnapshots{Limit: 2, Box: i.ID}); ; {
		page, next, err := c.Snapshots(ctx, box.Caller{}, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			got = append(got, s.ID)
		}
		if r.Cursor = next; next == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("list is %v, want %v", got, want)
	}
	for _, ref := range []string{"a", first.ID} {
		if s, err := c.InspectSnapshot(ctx, box.Caller{}, ref); err != nil || s != first {
			t.Errorf("%s: %+v, %v", ref, s, err)
		}
		b, err := c.Create(ctx, box.Caller{}, box.CreateRequest{Snapshot: ref})
		if err != nil || b.Start != box.StartRestored || b.StartReason == "" {
			t.Fatalf("%+v, %v", b, err)
		}
		again, err := c.Guest(ctx, box.Caller{}, b.ID, box.ScopeRead)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Stat(ctx, "/workspace/d", false); err != nil {
			t.Errorf("the folder is not in it: %v", err)
		}
	}
	if err := c.DeleteSnapshot(ctx, box.Caller{}, "a"); err != nil {
		t.Error(err)
	}
	if err := c.DeleteSnapshot(ctx, box.Caller{}, "a"); box.KindOf(err) != box.NotFound {
		t.Errorf("twice: %v", err)
	}
}

func TestForksAreToldOneByOne(t *testing.T) {
	_, url := daemon(t)
	c := dial(t, url, servertest.Key)
	i, _ := made(t, c)
	all, err := c.Fork(t.Context(), box.Caller{}, i.ID, box.ForkRequest{Count: servertest.ForkFails})
	if err != nil || len(all) != servertest.ForkFails {
		t.Fatalf("%+v, %v", all, err)
	}
	for n, f := range all {
		if n == len(all)-1 {
			if e, ok := f.Err.(*box.Error); !ok || e.Kind != box.Exhausted || e.Hint != "destroy one" || f.Info.ID != "" {
				t.Errorf("%+v", f)
			}
			continue
		}
		if f.Err != nil || f.Info.ID == i.ID || f.Info.Start != box.StartRestored || f.Info.Metadata["a"] != "b c" {
			t.Errorf("%+v", f)
		}
	}
}
