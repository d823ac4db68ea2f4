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

// weakWatches is what a box reports where its watches cannot be bounded.
const weakWatches = "files: a program can use up what the user that runs sunaba may watch of files (inotify): "

// boundWatches limits what a box may watch (inotify(7)): 8 instances, 8192 files.
// The kernel counts them also against the user that made the box's user
// namespace, and 128 instances are what a user has (fs.inotify.max_user_instances):
// without a bound of its own one box would leave none to all others of that
// user, and to the user. The bound is that of the box's namespace: user.* of
// sysctl, inc_ucount in Linux kernel/ucount.c. It needs CAP_SYS_RESOURCE there.
func boundWatches() error {
	for _, v := range []struct{ name, value string }{{"max_inotify_instances", "8"}, {"max_inotify_watches", "8192"}} {
		f, err := os.OpenFile("/proc/sys/user/"+v.name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(v.value)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// watches is boundWatches where it may fail: weak says so.
func (b *builder) watches() error {
	if err := boundWatches(); err != nil {
		b.weak = append(b.weak, weakWatches+err.Error())
	}
	return nil
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
