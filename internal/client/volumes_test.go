package client_test

import (
	"reflect"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

func TestVolumesAreWhatTheDaemonSays(t *testing.T) {
	_, url := daemon(t)
	c, ctx := dial(t, url, servertest.Key), t.Context()
	i, err := c.CreateVolume(ctx, box.Caller{}, "data", 2<<20)
	if err != nil || i.Name != "data" || i.Bytes != 2<<20 || i.Used != 2<<20 || i.Created.IsZero() || len(i.Boxes) != 0 {
		t.Fatalf("%+v, %v", i, err)
	}
	if again, err := c.CreateVolume(ctx, box.Caller{}, "data", 2<<20); err != nil || !reflect.DeepEqual(again, i) {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := c.CreateVolume(ctx, box.Caller{}, "data", 3<<20); box.KindOf(err) != box.Conflict {
		t.Errorf("another size: %v", err)
	}
	for name, bytes := range map[string]int64{"../x": 2 << 20, "a b": 2 << 20, "": 2 << 20, "small": 5} {
		if _, err := c.CreateVolume(ctx, box.Caller{}, name, bytes); box.KindOf(err) != box.Invalid {
			t.Errorf("%q of %d: %v", name, bytes, err)
		}
	}
	if _, err := c.CreateVolume(ctx, box.Caller{}, "a", 1<<20); err != nil {
		t.Fatal(err)
	}
	all, err := c.Volumes(ctx, box.Caller{})
	if err != nil || len(all) != 2 || all[0].Name != "a" || !reflect.DeepEqual(all[1], i) {
		t.Errorf("%+v, %v", all, err)
	}
	if got, err := c.InspectVolume(ctx, box.Caller{}, "data"); err != nil || !reflect.DeepEqual(got, i) {
		t.Errorf("%+v, %v", got, err)
	}
	other := dial(t, url, servertest.OtherKey)
	for _, ask := range []func() error{
		func() error { _, err := other.InspectVolume(ctx, box.Caller{}, "data"); return err },
		func() error { return other.DeleteVolume(ctx, box.Caller{}, "data") },
		func() error { return c.DeleteVolume(ctx, box.Caller{}, "a/../data") },
	} {
		if err := ask(); box.KindOf(err) != box.NotFound {
			t.Error(err)
		}
	}
	if all, err := other.Volumes(ctx, box.Caller{}); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := c.DeleteVolume(ctx, box.Caller{}, "data"); err != nil {
		t.Error(err)
	}
	if _, err := c.InspectVolume(ctx, box.Caller{}, "data"); box.KindOf(err) != box.NotFound {
		t.Error(err)
	}
}
