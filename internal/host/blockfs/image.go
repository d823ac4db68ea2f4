package blockfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// way is how an image got mounted.
type way string

const (
	fromFile way = "straight from its file"
	fromLoop way = "through a loop device"
)

// MountImage mounts an EROFS image from an open file, which it does not need
// any longer then, and returns it as a mount that is attached nowhere
// (read-only, nosuid, nodev). Linux 6.12 mounts the file itself
// (EROFS_FS_BACKED_BY_FILE); before, and where that is not built in, it goes
// through a loop device.
//
// Each call makes a file system of its own with its own page cache. Who starts
// many boxes from one image mounts it once and clones the mount where it is
// attached (hostfs.CloneMount). Safe for concurrent use.
func MountImage(f *os.File) (*os.File, error) {
	mnt, _, err := mountImage(f)
	return mnt, err
}

func mountImage(f *os.File) (*os.File, way, error) {
	mnt, err := mount("erofs", host.FDPath(f.Fd()), unix.MOUNT_ATTR_RDONLY, option{"ro", ""})
	if !errors.Is(err, unix.ENOTBLK) {
		return mnt, fromFile, err
	}
	mnt, err = mountImageLoop(f)
	return mnt, fromLoop, err
}

func mountImageLoop(f *os.File) (*os.File, error) {
	dev, err := attach(f, unix.LO_FLAGS_READ_ONLY)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	return mount("erofs", host.FDPath(dev.Fd()), unix.MOUNT_ATTR_RDONLY, option{"ro", ""})
}
