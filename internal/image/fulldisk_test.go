package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
)

// However much room is left: an image is there as a whole and by its digest, or
// nothing of it is; what was there stays; and with room again it is made.
func TestAFullDiskLeavesNoHalfImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user cannot make a disk to fill")
	}
	disk, _, err := blockfs.NewStore(t.TempDir(), 64<<20, 1000, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	root := host.FDPath(disk.Fd())
	filler := filepath.Join(root, "filler")
	refused, made := 0, 0
	for n, free := range []int64{0, 8 << 10, 1 << 20, 2 << 20, 32 << 20} {
		s, err := OpenStore(filepath.Join(root, fmt.Sprint("images", n)))
		if err != nil {
			t.Fatal(err)
		}
		before := sampleImage(t, s)
		fill(t, filler, free)
		img, err := s.Base(t.Context(), someFiles(t), nil)
		if err == nil {
			_, err = s.Tree(t.Context(), img, nil)
		}
		if err != nil {
			refused++
			if box.KindOf(err) != box.Unavailable || !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("with %d KiB: %v (%s)", free>>10, err, box.KindOf(err))
			}
		} else {
			made++
		}
		whole(t, s, img != nil)
		if old, err := s.Open(t.Context(), before.Digest); err != nil {
			t.Errorf("with %d KiB, an image that was there: %v", free>>10, err)
		} else {
			old.Close()
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		again := baseImage(t, s, someFiles(t))
		if tree, err := s.Tree(t.Context(), again, nil); err != nil {
			t.Errorf("with room again: %v", err)
		} else {
			tree.Close()
		}
		whole(t, s, true)
		if img != nil {
			img.Close()
		}
		again.Close()
		removeTreeAt(s.dir)
	}
	if refused == 0 || made == 0 {
		t.Errorf("%d were refused, %d made: the room was not at the edge", refused, made)
	}
}

// whole holds that nothing unfinished has a name, and that what is listed can be
// trusted.
func whole(t *testing.T, s *Store, made bool) {
	t.Helper()
	for _, dir := range []string{s.dir, s.treePath("")} {
		names, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, n := range names {
			if strings.HasPrefix(n.Name(), "tmp-") {
				t.Errorf("left behind: %s", n.Name())
			}
		}
	}
	all, err := s.Images()
	if err != nil {
		t.Fatal(err)
	}
	base := false
	for _, i := range all {
		base = base || i.Name == box.ImageBase
		if i.Name != box.ImageBase {
			continue
		}
		img, err := s.Open(t.Context(), i.Digest)
		if err != nil {
			t.Errorf("%s is listed and cannot be used: %v", i.Digest, err)
			continue
		}
		img.Close()
	}
	if base != made {
		t.Errorf("the image is listed: %v, was made: %v", base, made)
	}
}

// fill leaves so many bytes of the disk.
func fill(t *testing.T, name string, free int64) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block, size := make([]byte, 1<<20), int64(0)
	for len(block) >= 4096 {
		n, err := f.Write(block)
		if size += int64(n); err != nil {
			block = block[:len(block)/2]
		}
	}
	if err := errors.Join(f.Truncate(max(0, size-free)), f.Sync()); err != nil {
		t.Fatal(err)
	}
}
