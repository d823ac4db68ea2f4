package blockfs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// The steps of [Probe].
const (
	stepImage = "image mount"
	stepStore = "disk store"
)

// Probe really mounts a small image (EROFS) and makes a small store (ext4 in a
// file, through a loop device) in dir, looks at them, and lets them go: what
// doctor shows for a tier that needs them. A weak step's detail is what
// [NewStore] says of it. It takes some milliseconds.
func Probe(ctx context.Context, dir string) []box.Step {
	var steps []box.Step
	for _, s := range []struct {
		name string
		try  func(dir string) box.Step
	}{
		{stepImage, probeImage},
		{stepStore, probeStore},
	} {
		step := box.Step{State: box.Missing, Advice: "boxes started by an ordinary user get an extracted tree and a tmpfs instead"}
		switch {
		case ctx.Err() != nil:
			step.Detail, step.Advice = "not tried: "+context.Cause(ctx).Error(), ""
		case !host.IsRoot():
			step.Detail = "mounting needs root"
		default:
			step = s.try(dir)
		}
		step.Name = s.name
		steps = append(steps, step)
	}
	return steps
}

func failed(err error) box.Step {
	s := box.Step{State: box.Missing, Detail: err.Error()}
	var e *box.Error
	if errors.As(err, &e) {
		s.Advice = e.Hint
	}
	return s
}

func probeImage(dir string) box.Step {
	f, err := host.OpenUnlinked(dir)
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(emptyImage(), 0); err != nil {
		return failed(err)
	}
	start := time.Now()
	mnt, way, err := mountImage(f)
	if err != nil {
		return failed(err)
	}
	defer mnt.Close()
	return box.Step{State: box.Works, Detail: fmt.Sprintf("mounted %s in %s", way, since(start))}
}

func probeStore(dir string) box.Step {
	const size, files = 16 << 20, 100
	start := time.Now()
	mnt, dev, err := newStore(dir, size, files, 1, 1)
	if err != nil {
		return failed(err)
	}
	took := since(start)
	defer mnt.Close()
	defer dev.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(mnt.Fd()), &st); err != nil {
		return failed(fmt.Errorf("cannot stat store: %w", err))
	}
	if room := int64(st.Bavail) * st.Bsize; room < size || st.Ffree != files {
		return failed(fmt.Errorf("cannot trust store: it has room for %d bytes and %d files, want %d and %d", room, st.Ffree, size, files))
	}
	weak, err := weakness(dir, dev, mnt)
	if err != nil {
		return failed(err)
	}
	if len(weak) > 0 {
		return box.Step{State: box.Weak, Detail: weak[0], Advice: "let boxes be kept on ext4, xfs or btrfs: --state DIR or SUNABA_STATE"}
	}
	return box.Step{State: box.Works, Detail: "made in " + took + ", with direct I/O"}
}

func since(t time.Time) string { return time.Since(t).Round(100 * time.Microsecond).String() }

// emptyImage is the smallest EROFS image: an empty root folder.
func emptyImage() []byte {
	b := make([]byte, blockSize)
	copy(b[1024:], []byte{0xe2, 0xe1, 0xf5, 0xe0}) // magic
	copy(b[1028:], []byte{0x79, 0x8f, 0x76, 0x2c}) // CRC-32C of all this
	b[1024+8] = 3                                  // has a checksum, and modification times
	b[1024+12] = 12                                // 4096-byte blocks
	b[1024+14] = 36                                // the root's inode, in 32-byte slots
	b[1024+16] = 1                                 // inodes
	b[1024+36] = 1                                 // blocks
	inode := b[36*32:]
	inode[0] = 1 | 2<<1 // extended, contents inline
	inode[4], inode[5] = 0xed, 0x41
	inode[8] = 27
	inode[20] = 1
	inode[44] = 2
	dirents := inode[64:]
	dirents[0], dirents[8], dirents[10] = 36, 24, 2
	dirents[12], dirents[20], dirents[22] = 36, 25, 2
	copy(dirents[24:], "...")
	return b
}
