package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// name gives the box its own name. The namespace began as a copy, with the
// host's NIS domain.
func (b *builder) name() error {
	if err := unix.Sethostname([]byte(b.c.Hostname)); err != nil {
		return err
	}
	return unix.Setdomainname(nil)
}

// openPorts lets every program listen below port 1024, as root in a container
// could: the ports are the box's own. It is a convenience: where the host's
// /proc/sys is read-only, as in most containers, they stay closed.
func openPorts() error {
	f, err := os.OpenFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("0")
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}

// mountSys makes a /sys that tells of the machine's processors and nothing
// else: lscpu and libraries that start a thread for each look there.
func (b *builder) mountSys() error {
	sys, err := newMount("tmpfs", map[string]string{"size": "64k", "nr_inodes": "16", "mode": "0755"},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := b.attach(sys, "/sys"); err != nil {
		return err
	}
	dir := filepath.Join(b.root, "sys")
	for _, part := range []string{"devices", "system", "cpu"} {
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"online", "possible", "present"} {
		text, err := os.ReadFile("/sys/devices/system/cpu/" + name)
		if errors.Is(err, unix.ENOENT) {
			continue // no sysfs where this runs: the box has none to show
		}
		if err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, filepath.Join(b.root, "sys"), 0, &ro); err != nil {
		return fmt.Errorf("cannot make /sys read-only: %w", err)
	}
	return nil
}
