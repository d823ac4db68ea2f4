package host

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// PrivateMounts cuts this process's mount namespace off from all others, so
// that nothing mounted here shows elsewhere. The caller must own the
// namespace.
func PrivateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	return nil
}

// MountProc mounts a proc file system of the caller's PID namespace on /proc.
func MountProc() error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("cannot mount /proc of the box's PID namespace: %w", err)
	}
	return nil
}

// MountTmpfs mounts a small tmpfs for mount points only.
func MountTmpfs(dir string) error {
	if err := unix.Mount("sunaba", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=0700"); err != nil {
		return fmt.Errorf("cannot mount tmpfs on %s: %w", dir, err)
	}
	return nil
}

// OpenUnlinked creates a file without a name in dir: it vanishes with its last
// descriptor, whatever happens to the process. Owner is the caller.
func OpenUnlinked(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "unlinked"), nil
	}
	f, err := os.CreateTemp(dir, ".store-*") // file systems without O_TMPFILE
	if err != nil {
		return nil, fmt.Errorf("cannot create file in %s: %w", dir, err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot unlink file in %s: %w", dir, err)
	}
	return f, nil
}

// OnMemory reports whether files in dir live in memory (tmpfs, ramfs), so that
// a byte limit on them is not a byte limit on disk.
func OnMemory(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("cannot stat file system of %s: %w", dir, err)
	}
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC, nil
}

// NoExec reports whether nothing in dir can be executed, whatever its mode
// (mount(2), MS_NOEXEC).
func NoExec(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("cannot stat file system of %s: %w", dir, err)
	}
	return st.Flags&unix.ST_NOEXEC != 0, nil
}

// Allocated returns the bytes that a file really occupies.
func Allocated(f *os.File) int64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// Seal makes a finished file world-readable and returns a read-only descriptor
// of it, at offset 0. The caller still owns f, and closes it so that nobody
// holds the file writable.
func Seal(f *os.File) (*os.File, error) {
	if err := f.Chmod(0o444); err != nil {
		return nil, fmt.Errorf("cannot make file read-only: %w", err)
	}
	r, err := os.Open(FDPath(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot reopen file read-only: %w", err)
	}
	return r, nil
}

// OwnDir makes a folder that others may pass through but not read, and its
// parents, and makes sure that it is the caller's own and nobody else can
// write to it.
func OwnDir(dir string) error {
	parent := filepath.Dir(dir)
	if _, err := os.Stat(parent); os.IsNotExist(err) {
		if err := OwnDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o711); err != nil && !os.IsExist(err) {
		return fmt.Errorf("cannot make folder %s: %w", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("cannot look at folder %s: %w", dir, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("cannot use %s: it is not a folder", dir)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("cannot use %s: it belongs to user %d, not to the caller (%d)", dir, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		return fmt.Errorf("cannot use %s: others may write to it (mode %o)", dir, st.Mode&0o7777)
	}
	return nil
}
