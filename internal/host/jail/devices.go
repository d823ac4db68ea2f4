package jail

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// deviceNames are the devices that a box has.
func deviceNames() []string { return []string{"null", "zero", "full", "random", "urandom", "tty"} }

// deviceNumber is the number of a device; see Documentation/admin-guide/devices.txt
// of the kernel.
func deviceNumber(name string) (uint64, bool) {
	switch name {
	case "null":
		return unix.Mkdev(1, 3), true
	case "zero":
		return unix.Mkdev(1, 5), true
	case "full":
		return unix.Mkdev(1, 7), true
	case "random":
		return unix.Mkdev(1, 8), true
	case "urandom":
		return unix.Mkdev(1, 9), true
	case "tun":
		return nic.TUNNumber(), true
	case "tty":
		return unix.Mkdev(5, 0), true
	}
	return 0, false
}

// Devices makes a detached file system with the device files of one box, and others
// by name, such as tun, for its first process alone. It needs CAP_MKNOD over the
// host, which a box's first process has not.
//
// The host's own device files would do the same, but their inodes are shared: a
// lock on /dev/null is looked at by whoever closes it, and a box that takes
// twenty thousand locks makes that two hundred times as slow for all.
func Devices(more ...string) (*os.File, error) {
	tree, err := newMount("tmpfs", map[string]string{"size": "4k", "nr_inodes": "16", "mode": "0755"}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, err
	}
	for _, name := range append(deviceNames(), more...) {
		number, _ := deviceNumber(name)
		if err := unix.Mknodat(int(tree.Fd()), name, unix.S_IFCHR|0o666, int(number)); err != nil {
			tree.Close()
			return nil, fmt.Errorf("cannot make device %s: %w", name, err)
		}
		if err := unix.Fchmodat(int(tree.Fd()), name, 0o666, 0); err != nil { // umask does not apply
			tree.Close()
			return nil, fmt.Errorf("cannot set mode of device %s: %w", name, err)
		}
	}
	return tree, nil
}

// device is where a device file is bound from: the host's, unless the box has
// been given its own.
func (b *builder) device(name string) string {
	if b.devices == "" {
		return filepath.Join("/dev", name)
	}
	return filepath.Join(b.devices, name)
}

// takeDevices puts the box's own device files where they can be bound from.
func (b *builder) takeDevices() error {
	if b.c.Devices == nil {
		return nil
	}
	b.devices = filepath.Join(b.c.Dir, "devices")
	if err := os.Mkdir(b.devices, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	return unix.MoveMount(int(b.c.Devices.Fd()), "", unix.AT_FDCWD, b.devices, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
