package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hidden are the entries of /proc that tell about the host or reach into it and
// that no program needs. A folder is covered by an empty one, a file by
// /dev/null. What a kernel does not have is passed over.
func hidden() []string {
	return []string{
		"acpi", "asound", "bootconfig", "buddyinfo", "bus", "cmdline", "config.gz", "consoles", "crypto", "diskstats", "driver", "dma", "dynamic_debug", "execdomains", "fb", "fs", "interrupts", "iomem", "ioports", "irq",
		"kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "kpti", "latency_stats",
		"locks", "mdstat", "misc", "modules", "mtrr", "pagetypeinfo", "partitions", "pressure", "sched_debug", "schedstat", "scsi",
		"slabinfo", "softirqs", "swaps", "sysrq-trigger", "sysvipc", "timer_list", "timer_stats", "tty", "vmallocinfo", "vmstat", "zoneinfo",
	}
}

// deviceAttrs are those of a device file that is the host's own. A device on a
// read-only mount can be written to all the same; what cannot be changed are
// its times, which every box and the host see.
const deviceAttrs = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC

// maxTerminals bounds the terminals of a box: all boxes together can have as many
// as the machine has but for those it keeps (kernel.pty.max, kernel.pty.reserve).
const maxTerminals = "64"

// mountProc mounts the box's own /proc, read-only as a whole, /proc/sys
// included, and covers what is hidden.
func (b *builder) mountProc() error {
	proc, err := newMount("proc", nil, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer proc.Close()
	if err := b.attach(proc, "/proc"); err != nil {
		return err
	}
	for _, name := range hidden() {
		if err := b.cover("/proc/" + name); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) cover(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(filepath.Join(b.root, path), &st)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return b.bind(b.device("null"), path, deviceAttrs)
	}
	if b.empty != "" { // a file system each would cost more than all else here
		return b.bind(filepath.Join(b.root, b.empty), path, 0)
	}
	b.empty = path
	empty, err := newMount("tmpfs", map[string]string{"size": "4k", "nr_inodes": "1", "mode": "0555"}, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer empty.Close()
	return b.attach(empty, path)
}

// mountDev makes a tiny /dev: six devices bound from the host's, terminals of
// the box's own, and shared memory.
func (b *builder) mountDev() error {
	dev, err := newMount("tmpfs", map[string]string{"size": "64k", "nr_inodes": "64", "mode": "0755"}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := b.attach(dev, "/dev"); err != nil {
		return err
	}
	dir := filepath.Join(b.root, "dev")
	for _, name := range deviceNames() {
		if err := isDevice(b.device(name), name); err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		f.Close()
		if err := b.bind(b.device(name), "/dev/"+name, deviceAttrs); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		path, fstype string
		opts         map[string]string
		attrs        int
	}{
		{"/dev/pts", "devpts", map[string]string{"ptmxmode": "0666", "mode": "0600", "max": maxTerminals}, unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC},
		{"/dev/shm", "tmpfs", map[string]string{"size": fmt.Sprint(b.c.ShmBytes), "nr_inodes": "4096", "mode": "1777"},
			unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}, // code is mapped from it as on the host
	} {
		if err := os.Mkdir(filepath.Join(b.root, m.path), 0o755); err != nil {
			return err
		}
		mnt, err := newMount(m.fstype, m.opts, m.attrs)
		if err != nil {
			return err
		}
		err = b.attach(mnt, m.path)
		mnt.Close()
		if err != nil {
			return err
		}
	}
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &ro); err != nil {
		return fmt.Errorf("cannot make /dev read-only: %w", err)
	}
	return nil
}

// isDevice makes sure that a device file is what its name says before a box
// gets it (CVE-2025-31133: a link in its place).
func isDevice(path, name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if want, ok := deviceNumber(name); !ok || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != want {
		return fmt.Errorf("cannot use %s: it is not the %s device", path, name)
	}
	return nil
}

// loopbackUp raises lo, the only interface of the box's network namespace.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
}
