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
)

// NewStore makes a fresh file system and returns it as a mount that is attached
// nowhere (nosuid, nodev, noatime), for hostfs.MoveMount, or for use below its
// [host.FDPath]. Its root folder is empty, has mode 0755 and belongs to uid and
// gid of the host.
//
// At least bytes of contents fit, and at most 3 % more: 1 MiB to 8 TiB.
// Exactly inodes files, folders and links can be made. Beyond either, writing
// fails with ENOSPC. The file behind it lies in dir, has no name, and takes the
// room of what was written at most. If the host's disk runs full before the
// store does, the box sees EIO; a disk that is too full at the start is an
// error (box.Exhausted).
//
// Weak says, in the words that a box reports, what is not as it should be: dir
// is in memory, or its file system cannot do direct I/O. The store is bounded
// all the same, but what is written takes memory that is in no box's account.
//
// The store is gone once every mount of it is gone and every file in it is
// closed. Data that the box wrote last may go to the disk first; [Discard]
// saves that. It takes about a millisecond. Safe for concurrent use.
func NewStore(dir string, bytes, inodes int64, uid, gid int) (mnt *os.File, weak []string, err error) {
	mnt, dev, err := newStore(dir, bytes, inodes, uid, gid)
	if err != nil {
		return nil, nil, err
	}
	defer dev.Close()
	if weak, err = weakness(dir, dev, mnt); err != nil {
		mnt.Close()
		return nil, nil, err
	}
	return mnt, weak, nil
}

const (
	weakMemory = "disk: the state folder is in memory (tmpfs); what a program writes is bounded by the disk limit but takes memory, in no box's account"
	weakCached = "disk: the file system of the state folder cannot do direct I/O; what a program writes is bounded by the disk limit but passes through the host's page cache, in no box's account"
)

// weakness asks where the data of the store on a loop device are held, and
// whether anybody would tell of those that get lost.
func weakness(dir string, dev, mnt *os.File) ([]string, error) {
	memory, err := host.OnMemory(dir)
	if err != nil {
		return nil, err
	}
	if memory {
		return []string{weakMemory}, nil
	}
	status, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot look at loop device: %w", err)
	}
	if status.Flags&unix.LO_FLAGS_DIRECT_IO == 0 {
		return []string{weakCached}, nil
	}
	return blind(mnt), nil
}

// newStore also returns the loop device.
func newStore(dir string, bytes, inodes int64, uid, gid int) (mnt, dev *os.File, err error) {
	o := ext4.Options{Bytes: bytes, Files: inodes, UID: uint32(uid), GID: uint32(gid), Now: time.Now()}
	if err := o.Check(); err != nil {
		return nil, nil, box.Errorf(box.Invalid, op, "%w", err)
	}
	rand.Read(o.Seed[:])
	f, err := host.OpenUnlinked(dir)
	if err != nil {
		return nil, nil, box.Errorf(box.Fault, op, "cannot make store: %w", err)
	}
	defer f.Close() // the loop device holds it
	if err := hasRoom(f, bytes); err != nil {
		return nil, nil, err
	}
	size, err := ext4.Write(f, o)
	if err != nil {
		return nil, nil, box.Errorf(box.Fault, op, "cannot make store: %w", err)
	}
	if err := f.Truncate(size); err != nil {
		return nil, nil, box.Errorf(box.Fault, op, "cannot make store: %w", err)
	}
	return mountStore(f)
}

// mountStore mounts the file system in a file, and also returns the loop device.
func mountStore(f *os.File) (mnt, dev *os.File, err error) {
	// Where the file system cannot do direct I/O the kernel goes without.
	dev, err = attach(f, unix.LO_FLAGS_DIRECT_IO)
	if err != nil {
		return nil, nil, err
	}
	// Nobody reads a store after a crash, so nothing waits for the disk's own
	// cache (nobarrier), and a file that replaces another is not flushed first.
	// Nor does anybody see old data in it, so blocks need no second step from
	// unwritten to written (dioread_lock), which kernel threads do at nobody's
	// expense. What is not there needs no reading ahead: that costs a kernel
	// thread and half of the time.
	tuned := []option{{"nobarrier", ""}, {"noauto_da_alloc", ""}, {"dioread_lock", ""}, {"inode_readahead_blks", "0"}, {"no_prefetch_block_bitmaps", ""}}
	source := host.FDPath(dev.Fd())
	mnt, err = mount("ext4", source, unix.MOUNT_ATTR_NOATIME, tuned...)
	if errors.Is(err, unix.EINVAL) { // a kernel that does not know the last one
		mnt, err = mount("ext4", source, unix.MOUNT_ATTR_NOATIME, tuned[:len(tuned)-1]...)
	}
	if err != nil {
		dev.Close()
		return nil, nil, err
	}
	return mnt, dev, nil
}

func hasRoom(f *os.File, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("cannot stat file system of the store: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < bytes {
		return box.Errorf(box.Exhausted, op, "cannot make store of %d bytes: the host's disk has %d left", bytes, free).
			WithHint("free some space, lower the disk limit, or let boxes be kept on another disk")
	}
	return nil
}

// EXT4_IOC_SHUTDOWN of Linux fs/ext4/ext4.h, _IOR('X', 125, __u32). The default
// flag would freeze the device first, and so write everything out.
const (
	ext4Shutdown = 0x8004587d
	withoutFlush = 2 // EXT4_GOING_FLAGS_NOLOGFLUSH
)

// Discard gives up a store's contents: whoever still uses it gets EIO, and
// nothing more is written to the disk. It makes the end of a store with
// hundreds of megabytes of fresh data take tens of milliseconds, not hundreds.
// The caller still closes the mount.
func Discard(store *os.File) error {
	fd, err := unix.Openat(int(store.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot discard store: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetPointerInt(fd, ext4Shutdown, withoutFlush); err != nil {
		return fmt.Errorf("cannot discard store: %w", err)
	}
	return nil
}
