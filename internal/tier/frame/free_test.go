package frame

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
)

func TestNoTwoBoxesOfAHostHaveOneUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's boxes are all that user")
	}
	groups, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		t.Skipf("no control groups on this host: %v", err)
	}
	s := &Site{State: t.TempDir(), Groups: groups}
	seen := map[int]box.ID{}
	var one, other box.ID
	for one == "" {
		id := box.NewID()
		uid, _ := s.HostUser(id)
		if first, twice := seen[uid]; twice && first != id {
			one, other = first, id
		}
		seen[uid] = id
	}
	first := &Box{site: s, Spec: box.Spec{ID: one}}
	if free, err := s.Free(other); !free || err != nil {
		t.Fatalf("before: %v, %v", free, err)
	}
	if ok, err := first.Limit(cgroup.Limits{Pids: 10}); !ok || err != nil {
		t.Fatal(err)
	}
	defer first.Group.Remove(context.Background())
	if free, err := s.Free(other); free || err != nil {
		t.Errorf("the user of a box that is there is free: %v", err)
	}
	if free, err := s.Free(one); !free || err != nil {
		t.Errorf("a box is in its own way: %v", err)
	}
	// However they came to it, one of two does not begin.
	second := &Box{site: s, Spec: box.Spec{ID: other}}
	if _, err := second.Limit(cgroup.Limits{Pids: 10}); box.KindOf(err) != box.Unavailable {
		t.Errorf("two boxes with one user: %v", err)
	}
	if err := second.Group.Remove(context.Background()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
