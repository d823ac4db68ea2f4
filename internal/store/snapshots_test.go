package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func snapshotRow(tenant, name string, n int) Snapshot {
	return Snapshot{Tenant: tenant, Principal: "p", Sandbox: []byte(`{"a":1}`), SnapshotInfo: box.SnapshotInfo{
		ID: fmt.Sprintf("sha256:%064x", n), Name: name, Kind: box.SnapshotFiles, Tier: box.TierGvisor, Image: "i", Box: box.NewID(), Bytes: int64(n),
		Created: time.UnixMilli(1e12 + int64(n/2)).UTC(), // two of each moment
	}}
}

func TestRowsOfSnapshotsAreFoundListedAndForgotten(t *testing.T) {
	s := open(t, t.TempDir())
	var want []string
	for n := range 6 {
		name := ""
		if n == 3 {
			name = "three"
		}
		r := snapshotRow("a", name, n)
		if err := s.AddSnapshot(t.Context(), r, 0, 0); err != nil {
			t.Fatal(err)
		}
		want = append(want, r.ID)
		for _, ref := range []string{r.ID, name} {
			if got, err := s.Snapshot(t.Context(), "a", ref); ref != "" && (err != nil || got.SnapshotInfo != r.SnapshotInfo || string(got.Sandbox) != string(r.Sandbox)) {
				t.Errorf("%q: %+v, %v", ref, got, err)
			}
		}
	}
	slices.Reverse(want)
	var got []string
	for before := (Before{}); ; {
		page, err := s.Snapshots(t.Context(), "a", "", before, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page[0].ID)
		before = Before{page[0].Created, page[0].ID}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, ref := range []string{"", "none", want[0]} { // the last is another tenant's
		if _, err := s.Snapshot(t.Context(), "b", ref); box.KindOf(err) != box.NotFound {
			t.Errorf("%q: %v", ref, err)
		}
		if _, err := s.ForgetSnapshot(t.Context(), "b", ref); box.KindOf(err) != box.NotFound {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if r, err := s.ForgetSnapshot(t.Context(), "a", "three"); err != nil || r.Name != "three" {
		t.Errorf("%+v, %v", r, err)
	}
	ids, err := s.SnapshotIDs(t.Context())
	if err != nil || len(ids) != 5 || !ids[want[0]] {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestATenantsSnapshotsAreCountedAndNamedOnce(t *testing.T) {
	s := open(t, t.TempDir())
	if ids, err := s.SnapshotIDs(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("%v, %v", ids, err)
	}
	for n, c := range []struct {
		row  Snapshot
		want box.Kind
	}{
		{snapshotRow("a", "x", 0), ""},
		{snapshotRow("a", "x", 1), box.Conflict},
		{snapshotRow("b", "x", 2), ""},
		{snapshotRow("a", "", 3), ""},
		{snapshotRow("a", "", 4), box.Exhausted},
	} {
		_, err := s.RoomForSnapshot(t.Context(), c.row.Tenant, c.row.Name, 2, 0)
		if added := s.AddSnapshot(t.Context(), c.row, 2, 0); (err == nil) != (c.want == "") || err != nil && box.KindOf(err) != c.want || fmt.Sprint(added) != fmt.Sprint(err) {
			t.Errorf("%d: %v before, %v then, want %s", n, err, added, c.want)
		}
	}
}

func TestATenantsSnapshotsHaveABoundTogether(t *testing.T) {
	s := open(t, t.TempDir())
	sized := func(tenant string, n int, bytes int64) Snapshot {
		r := snapshotRow(tenant, "", n)
		r.Bytes = bytes
		return r
	}
	const most = 100
	for n, c := range []struct {
		row  Snapshot
		left int64 // before
		want box.Kind
	}{
		{sized("a", 0, 60), 100, ""},
		{sized("a", 1, 41), 40, box.Exhausted},
		{sized("b", 2, 100), 100, ""},
		{sized("a", 3, 40), 40, ""},
		{sized("a", 4, 1), 0, box.Exhausted},
	} {
		left, err := s.RoomForSnapshot(t.Context(), c.row.Tenant, "", 0, most)
		if left != c.left || (err != nil) != (c.left == 0) {
			t.Errorf("%d: %d left, want %d; %v", n, left, c.left, err)
		}
		if err := s.AddSnapshot(t.Context(), c.row, 0, most); (err == nil) != (c.want == "") || err != nil && box.KindOf(err) != c.want {
			t.Errorf("%d: %v, want %s", n, err, c.want)
		}
	}
}
