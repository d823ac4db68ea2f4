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
	if err := capsetAllThreads([2]unix.CapUserData{}); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	return nil
}

// Drop takes one capability below 32, by its number, from every set of every
// thread, which needs CAP_SETPCAP. All threads get what else the calling one
// has. In a program without cgo only.
func Drop(capability uintptr) error {
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability, 0); e != 0 {
		return fmt.Errorf("cannot drop capability %d from the bounding set: %w", capability, e)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&hdr, &held[0]); err != nil {
		return fmt.Errorf("cannot read capabilities: %w", err)
	}
	for _, set := range []*uint32{&held[0].Effective, &held[0].Permitted, &held[0].Inheritable} {
		*set &^= 1 << capability
	}
	if err := capsetAllThreads(held); err != nil { // the ambient set follows
		return fmt.Errorf("cannot drop capability %d: %w", capability, err)
	}
	return nil
}
