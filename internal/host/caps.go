package host

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// DropAll removes every capability from every thread of this process, for
// good: ambient, inheritable, permitted and effective sets are emptied and
// no_new_privs is set. It must be called in a program without cgo, whose
// threads are all known to the Go runtime.
func DropAll() error {
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("cannot clear ambient capabilities: %w", e)
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("cannot set no_new_privs: %w", e)
	}
	if err := capsetAllThreads(); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	return nil
}
