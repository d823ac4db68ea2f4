package host

import (
	"errors"

	"golang.org/x/sys/unix"
)

// IsShortage reports whether something failed for want of what this host gives
// back later: descriptors, memory, room on a disk, processes. It says nothing
// of the thing that was asked for.
func IsShortage(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOSPC, unix.EDQUOT, unix.EAGAIN, unix.ENOBUFS, unix.ETOOMANYREFS, ErrBusy} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
