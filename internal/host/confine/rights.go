package confine

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// Caps are capability sets as bit masks; see capabilities(7).
type Caps struct{ Effective, Permitted, Inheritable, Bounding, Ambient uint64 }

// The bits of linux/securebits.h: user 0 gets no capabilities by execve, none
// by a change of user id, nobody keeps or raises any; each locked.
const securebits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// DropRights takes every capability from all threads of the calling process,
// for good, and the ways to get one back: the sets of [host.DropAll], before
// them the bounding set and the secure bits, which need CAP_SETPCAP. It is for
// a process that lives on, such as the first of a box; its children have
// nothing left to give up. In a program without cgo only.
//
// What the calling thread's bounding set lacks is taken to have been dropped
// before there were other threads, as a program does that executes this one:
// each capability costs a stop of the whole runtime otherwise.
func DropRights() error {
	for c := range knownCaps() {
		if held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && held == 0 {
			continue
		}
		if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); e != 0 {
			return fmt.Errorf("cannot drop capability %d from the bounding set: %w", c, e)
		}
	}
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, securebits, 0); e != 0 {
		return fmt.Errorf("cannot set secure bits: %w", e)
	}
	return host.DropAll()
}

// dropRights takes every capability from the calling thread. Without
// CAP_SETPCAP the bounding set and the secure bits stay, which is said in Weak
// if anything is left: no_new_privs keeps them from being of use.
func (a *Applied) dropRights() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&hdr, &held[0]); err != nil {
		return fmt.Errorf("cannot read capabilities: %w", err)
	}
	if held[0].Effective&(1<<unix.CAP_SETPCAP) != 0 {
		for c := range knownCaps() {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
				return fmt.Errorf("cannot drop capability %d from the bounding set: %w", c, err)
			}
		}
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, securebits, 0, 0, 0); err != nil {
			return fmt.Errorf("cannot set secure bits: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot clear ambient capabilities: %w", err)
	}
	var none [2]unix.CapUserData
	if err := unix.Capset(&hdr, &none[0]); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	if err := setNoNewPrivs(); err != nil {
		return err
	}
	return a.readRights()
}

func (a *Applied) readRights() error {
	var err error
	if a.Caps, err = readCaps(); err != nil {
		return err
	}
	left := a.Caps
	left.Bounding = 0
	if left != (Caps{}) {
		return fmt.Errorf("cannot drop capabilities: %+v are left", a.Caps)
	}
	if a.Securebits, err = unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot read secure bits: %w", err)
	}
	if a.Caps.Bounding != 0 {
		a.Weak = append(a.Weak, "the bounding set of capabilities is not empty: this user may not empty it, and no_new_privs alone keeps it from being used")
	}
	v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if a.NoNewPrivs = v == 1; err != nil || !a.NoNewPrivs {
		return fmt.Errorf("cannot go on without no_new_privs: it is %d (%v)", v, err)
	}
	return nil
}

func readCaps() (Caps, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&hdr, &d[0]); err != nil {
		return Caps{}, fmt.Errorf("cannot read capabilities: %w", err)
	}
	c := Caps{
		Effective:   uint64(d[1].Effective)<<32 | uint64(d[0].Effective),
		Permitted:   uint64(d[1].Permitted)<<32 | uint64(d[0].Permitted),
		Inheritable: uint64(d[1].Inheritable)<<32 | uint64(d[0].Inheritable),
	}
	for i := range knownCaps() {
		b, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(i), 0, 0, 0)
		m, err2 := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, uintptr(i), 0, 0)
		if err := errors.Join(err, err2); err != nil {
			return c, fmt.Errorf("cannot read capability %d: %w", i, err)
		}
		c.Bounding |= uint64(b) << i
		c.Ambient |= uint64(m) << i
	}
	return c, nil
}

// knownCaps is the number of capabilities that the kernel knows.
func knownCaps() int {
	for c := range 64 {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err != nil {
			return c
		}
	}
	return 64
}
