package blockfs

import (
	"context"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

func TestAStoreSaysWhereItsDataAreHeld(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a store is mounted")
	}
	disk, err := os.MkdirTemp("/var/tmp", "blockfs-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(disk)
	memory, err := os.MkdirTemp("/dev/shm", "blockfs-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(memory)
	for dir, want := range map[string]struct {
		weak  []string
		state box.StepState
	}{disk: {nil, box.Works}, memory: {[]string{weakMemory}, box.Weak}} {
		if mem, err := host.OnMemory(dir); err != nil || mem != (dir == memory) {
			t.Skipf("%s is not where it usually is (in memory: %v, %v)", dir, mem, err)
		}
		mnt, weak, err := NewStore(dir, testBytes, testFiles, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		mnt.Close()
		if !slices.Equal(weak, want.weak) {
			t.Errorf("%s: weak %q, want %q", dir, weak, want.weak)
		}
		for _, s := range Probe(context.Background(), dir) {
			if s.Name == stepStore && (s.State != want.state || len(want.weak) > 0 && s.Detail != want.weak[0]) {
				t.Errorf("%s: %+v", dir, s)
			}
		}
	}
}

func TestAStoreThroughThePageCacheIsWeak(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a loop device is bound")
	}
	f, err := host.OpenUnlinked("/var/tmp")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	dev, err := attach(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_DIRECT_IO, 0); err != nil {
		t.Fatal(err)
	}
	if weak, err := weakness("/var/tmp", dev, dev); err != nil || !slices.Equal(weak, []string{weakCached}) {
		t.Errorf("weak %q, %v", weak, err)
	}
}
