package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func volumeRow(tenant, name string, n int) Volume {
	return Volume{Tenant: tenant, Name: name, Principal: "p", File: fmt.Sprint("f", n), Bytes: int64(n) << 20, Created: time.UnixMilli(1e12 + int64(n)).UTC()}
}

func TestRowsOfVolumesAreFoundListedAndForgotten(t *testing.T) {
	s := open(t, t.TempDir())
	one, two, other := volumeRow("a", "one", 1), volumeRow("a", "two", 2), volumeRow("b", "one", 3)
	for _, v := range []Volume{two, one, other} {
		if err := s.AddVolume(t.Context(), v, 0, 0); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Volume(t.Context(), v.Tenant, v.Name); err != nil || got != v {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for tenant, want := range map[string]string{"a": fmt.Sprint([]Volume{one, two}), "b": fmt.Sprint([]Volume{other}), "c": "[]", "": fmt.Sprint([]Volume{one, two, other})} {
		if got, err := s.Volumes(t.Context(), tenant); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", tenant, got, err)
		}
	}
	// What is another tenant's is not found, in the words of what is not there.
	_, theirs := s.Volume(t.Context(), "b", "two")
	_, none := s.Volume(t.Context(), "nobody", "two")
	if box.KindOf(theirs) != box.NotFound || theirs.Error() != none.Error() {
		t.Errorf("%v, %v", theirs, none)
	}
	for _, not := range []Volume{{Tenant: "b", Name: "two", File: "f2"}, {Tenant: "a", Name: "two", File: "f1"}} {
		if err := s.ForgetVolume(t.Context(), not); box.KindOf(err) != box.NotFound {
			t.Errorf("%+v: %v", not, err)
		}
	}
	if err := s.ForgetVolume(t.Context(), two); err != nil {
		t.Error(err)
	}
	if _, err := s.Volume(t.Context(), "a", "two"); box.KindOf(err) != box.NotFound {
		t.Error(err)
	}
}

func TestATenantHasSoManyVolumesAndBytesAndEachNameOnce(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.AddVolume(t.Context(), volumeRow("a", "one", 1), 2, 10<<20); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		v    Volume
		most int
		want box.Kind
	}{
		"the same name": {volumeRow("a", "one", 2), 2, box.Conflict},
		"too many":      {volumeRow("a", "two", 2), 1, box.Exhausted},
		"too large":     {volumeRow("a", "two", 10), 2, box.Exhausted},
	} {
		if err := s.RoomForVolume(t.Context(), c.v, c.most, 10<<20); box.KindOf(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
		if err := s.AddVolume(t.Context(), c.v, c.most, 10<<20); box.KindOf(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	// All that it may, to the byte; and another tenant has its own.
	for _, v := range []Volume{volumeRow("a", "two", 9), volumeRow("b", "one", 10)} {
		if err := s.RoomForVolume(t.Context(), v, 2, 10<<20); err != nil {
			t.Error(err)
		}
		if err := s.AddVolume(t.Context(), v, 2, 10<<20); err != nil {
			t.Error(err)
		}
	}
	// No file is two rows'.
	if err := s.AddVolume(t.Context(), volumeRow("c", "x", 9), 0, 0); err == nil {
		t.Error("a file is two volumes")
	}
}
