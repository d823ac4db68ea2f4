// Package blockfs mounts file systems that lie in files, so that their size is
// a wall and not a count, for root only.
//
// Two are needed: a read-only EROFS image, which many boxes show as their root,
// and a store, a fresh empty ext4 of exactly as many bytes and files as a box
// may write. Nothing here has a name: the store's file is made without one, its
// loop device lets go by itself, and a mount is a descriptor that is attached
// nowhere (fsmount(2)). When the last descriptor and the last place where the
// mount was attached are gone, also because a process was killed, the kernel
// takes it all down. What remains is, at most, an unbound /dev/loopN for the
// next who needs one.
//
// # Where a store's data are held
//
// Data that a box has written and that are not on disk yet are pages of the
// ext4 file system, and belong to the box's own memory group. The loop device
// writes them to the file past the page cache (direct I/O): through it, each
// byte would be held a second time, in the host's memory on a cgroup v1 host
// (the loop worker finds the box's block I/O group, but not the memory group
// that lies in another hierarchy), and a box could use up all dirty pages that
// the host allows. So a box that writes waits for the disk, and only itself.
package blockfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

const (
	op        = "mount file system"
	blockSize = 4096
)

func unusable(format string, args ...any) *box.Error {
	return box.Errorf(box.Unusable, op, format, args...)
}

// option is a mount option; one without a value is a flag.
type option struct{ key, value string }

// mount makes a detached mount, whose root the returned descriptor is.
func mount(fstype, source string, attrs int, options ...option) (*os.File, error) {
	fd, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		if errors.Is(err, unix.ENODEV) {
			return nil, unusable("cannot mount %s: this kernel does not have it", fstype).
				WithHint("load the module: modprobe %s", fstype)
		}
		return nil, cannotMount(fstype, err)
	}
	ctx := os.NewFile(uintptr(fd), "fs:"+fstype)
	defer ctx.Close()
	for _, o := range append([]option{{"source", source}}, options...) {
		if o.value == "" {
			err = unix.FsconfigSetFlag(fd, o.key)
		} else {
			err = unix.FsconfigSetString(fd, o.key, o.value)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot set mount option %s of %s: %w", o.key, fstype, err)
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return nil, cannotMount(fstype, err)
	}
	mnt, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attrs|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, cannotMount(fstype, err)
	}
	return os.NewFile(uintptr(mnt), fstype), nil
}

// cannotMount tells a host that forbids it from a file system that is broken.
func cannotMount(fstype string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("cannot mount %s: %w", fstype, err)
	}
	return unusable("cannot mount %s: %w", fstype, err).
		WithHint("%s", adviceMount)
}

// adviceMount is for a root that is not the host's.
const adviceMount = "root needs CAP_SYS_ADMIN on the host to mount (docker: --privileged); or run sunaba as an ordinary user, who needs no such mount, or use tier gvisor"
