package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

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

// lockAgain is how often a lock is asked for that somebody lets go soon.
const lockAgain = 10 * time.Millisecond

// LockAfter is Lock for a folder whose last holder may just have been killed. It
// asks again for up to most, as long as dying says that it may be worth it.
//
// A process that is killed while it starts another leaves that one with a copy of
// all its descriptors, and so with its locks, until that one executes its program
// (close-on-exec). On a busy host the next daemon comes sooner than that.
func LockAfter(path string, most time.Duration, dying func() bool) (*os.File, error) {
	for end := time.Now().Add(most); ; {
		f, err := Lock(path)
		if !errors.Is(err, unix.EWOULDBLOCK) || !time.Now().Before(end) || !dying() {
			return f, err
		}
		<-time.After(lockAgain)
	}
}

// Dead reports whether no process has that number, or one that has ended and is
// still to be waited for.
func Dead(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	// The state comes behind the name, which may hold anything: proc_pid_stat(5).
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(f) > 0 && (f[0][0] == 'Z' || f[0][0] == 'X')
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

// TryLock takes the lock of an open file, or turns the one that is held: exclusive,
// or shared with others that are. It belongs to the open file description, and goes
// when nobody, the kernel included, has that open any more; see flock(2). It does not
// wait: false says that another has the lock, and a lock that was to be turned may
// then be lost.
func TryLock(f *os.File, exclusive bool) (bool, error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
	case err == unix.EWOULDBLOCK:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot lock %s: %w", f.Name(), err)
	}
	return true, nil
}

// Unlock gives the lock of [TryLock] back.
func Unlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return fmt.Errorf("cannot unlock %s: %w", f.Name(), err)
	}
	return nil
}
