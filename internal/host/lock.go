package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Lock takes the exclusive lock of a folder or file for as long as the
// returned descriptor is open in this process or one that inherited it; see
// flock(2). It does not wait: a held lock is an error.
func Lock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s to lock it: %w", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	return f, nil
}

// Locked reports whether somebody holds the lock of path. A path that cannot
// be opened counts as locked: it is not ours to judge.
func Locked(path string) bool {
	f, err := Lock(path)
	if err != nil {
		return !os.IsNotExist(err)
	}
	f.Close()
	return false
}
