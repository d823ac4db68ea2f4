package blockfs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs/ext4"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

const opVolume = "use volume"

// VolumeMin and VolumeMax bound the size of a volume in bytes.
const (
	VolumeMin = ext4.MinBytes
	VolumeMax = ext4.MaxBytes
)

// volumeFiles is how many files fit on a volume: one for 16 KiB, as mkfs.ext4 has it.
func volumeFiles(bytes int64) int64 { return min(max(bytes>>14, 256), ext4.MaxFiles) }

func volumeOptions(bytes int64) ext4.Options {
	return ext4.Options{Bytes: bytes, Files: volumeFiles(bytes), UID: host.BoxUser, GID: host.BoxUser, Journal: true, Now: time.Now()}
}

// MakeVolume makes an empty file a volume of so many bytes, VolumeMin to VolumeMax:
// an ext4 file system that can be mounted again and again, with a journal. At least
// bytes of contents fit, and at most 3 % more, and a file per 16 KiB. It returns
// when all is on the disk.
//
// The room is set aside on the host's disk there and then (fallocate(2)), journal
// included: a disk without it is Exhausted now, and not an error for a program that
// writes later. A 20th of the disk stays for others. A file system of the host's that
// cannot set room aside is Unsupported.
func MakeVolume(f *os.File, bytes int64) error {
	o := volumeOptions(bytes)
	size, err := ext4.Size(o)
	if err != nil {
		return box.Errorf(box.Invalid, opVolume, "cannot make a volume of %d bytes: allowed are %d to %d", bytes, VolumeMin, int64(VolumeMax))
	}
	noRoom := func(left int64) error {
		return box.Errorf(box.Exhausted, opVolume, "cannot make a volume of %d bytes: it takes %d of the host's disk, which has %d left for it", bytes, size, left).
			WithHint("ask for less, or have the operator free some space")
	}
	// Asked first: what finds out by taking all that there is takes it from everybody.
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &disk); err != nil {
		return fmt.Errorf("cannot measure the disk for a volume: %w", err)
	}
	if left := (int64(disk.Bavail) - int64(disk.Blocks)/20) * disk.Bsize; left < size {
		return noRoom(max(left, 0))
	}
	for {
		if err = unix.Fallocate(int(f.Fd()), 0, 0, size); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG):
		return noRoom(0)
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
		return box.Errorf(box.Unsupported, opVolume, "cannot make a volume: the file system of the state folder cannot set room aside").
			WithHint("let boxes be kept on ext4, xfs, btrfs or tmpfs")
	case err != nil:
		return fmt.Errorf("cannot set room aside for a volume: %w", err)
	}
	rand.Read(o.Seed[:])
	if _, err := ext4.Write(f, o); err != nil {
		return err
	}
	return f.Sync()
}

// CheckVolume refuses a file that is no volume of so many bytes, and one whose
// kernel has found its file system damaged. Replay says that it was not unmounted
// when its host stopped, so that the next mount has to write. Nothing is mounted.
func CheckVolume(f *os.File, bytes int64) (replay bool, err error) {
	damaged := func(format string, args ...any) error {
		return box.Errorf(box.Unusable, opVolume, "cannot use volume: "+format, args...).
			WithHint("the operator can look at its file with e2fsck, while no box has it: see docs/volumes.md")
	}
	k, err := ext4.Look(f)
	if err != nil {
		return false, damaged("%w", err)
	}
	want, err := ext4.Size(volumeOptions(bytes))
	if err != nil {
		return false, damaged("it is to have %d bytes", bytes)
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		return false, fmt.Errorf("cannot look at the file of a volume: %w", err)
	case k.Size != want || st.Size() != want:
		return false, damaged("its file has %d bytes and its file system %d, instead of %d", st.Size(), k.Size, want)
	case k.Errors > 0:
		return false, damaged("its file system is damaged: the kernel has found %d errors in it", k.Errors)
	}
	return k.Replay, nil
}

// MountVolume mounts a volume, and returns it as a mount that is attached nowhere:
// nosuid, nodev, noatime. What the user of the same number as in a box has on it is
// shown as uid's and gid's; nothing of anybody else's can be made. Weak is as of
// [NewStore].
//
// The kernel holds the open file description of f for as long as the file system is
// mounted anywhere, and with it a lock of flock(2) that f has. Whoever has a shared
// one mounts for reading. What was not written out when the last mount goes is
// written then. For writing, f is open for writing.
func MountVolume(f *os.File, dir string, readOnly bool, uid, gid int) (_ *os.File, weak []string, err error) {
	mnt, dev, err := mountVolume(f, readOnly)
	if err != nil {
		return nil, nil, err
	}
	defer dev.Close()
	defer func() {
		if err != nil {
			mnt.Close()
		}
	}()
	if weak, err = weakness(dir, dev, mnt); err != nil {
		return nil, nil, err
	}
	// The bound that is claimed is that of the file system: it has to be smaller
	// than its file.
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(mnt.Fd()), &st); err != nil {
		return nil, nil, fmt.Errorf("cannot measure a volume: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot measure a volume: %w", err)
	}
	if int64(st.Blocks)*st.Bsize >= info.Size() {
		return nil, nil, box.Errorf(box.Unusable, opVolume, "cannot use volume: its file system claims %d bytes, and its file has %d", int64(st.Blocks)*st.Bsize, info.Size())
	}
	err = hostfs.SetMount(mnt, hostfs.MountAttr{
		ReadOnly: readOnly,
		Users:    []hostfs.IDMap{{From: host.BoxUser, To: uint32(uid)}},
		Groups:   []hostfs.IDMap{{From: host.BoxUser, To: uint32(gid)}},
	})
	if err != nil {
		return nil, nil, unusable("%w", err)
	}
	return mnt, weak, nil
}

// ReplayVolume makes a volume whole that was not unmounted, by a mount for writing
// that nobody sees. It returns when it is unmounted.
func ReplayVolume(f *os.File) error {
	mnt, dev, err := mountVolume(f, false)
	if err != nil {
		return err
	}
	err = host.SyncFS(mnt)
	mnt.Close()
	dev.Close()
	return err
}

func mountVolume(f *os.File, readOnly bool) (mnt, dev *os.File, err error) {
	flags, attrs := uint32(unix.LO_FLAGS_DIRECT_IO), unix.MOUNT_ATTR_NOATIME
	options := []option{{"errors", "remount-ro"}, {"inode_readahead_blks", "0"}}
	if readOnly {
		flags, attrs, options = flags|unix.LO_FLAGS_READ_ONLY, attrs|unix.MOUNT_ATTR_RDONLY, append(options, option{"ro", ""})
	}
	if dev, err = attach(f, flags); err != nil {
		return nil, nil, err
	}
	if mnt, err = mount("ext4", host.FDPath(dev.Fd()), attrs, options...); err != nil {
		dev.Close()
		return nil, nil, err
	}
	return mnt, dev, nil
}
