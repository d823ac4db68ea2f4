package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrWritten says that somebody has a file open for writing.
var ErrWritten = errors.New("somebody has it open for writing")

// LeaseRead takes a read lease on a file of the caller's that is open for reading
// only, until that description is closed: nobody has it open for writing, else the
// error is [ErrWritten], and who opens it so later waits until the lease is given
// up, for a time that the kernel bounds (45 s, /proc/sys/fs/lease-break-time). See
// fcntl(2), "Leases". Any other error says that the file system has none.
func LeaseRead(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == unix.EAGAIN:
		return ErrWritten
	case err != nil:
		return fmt.Errorf("cannot take a lease on %s: %w", f.Name(), err)
	}
	return nil
}

// Leased reports whether a lease of [LeaseRead] is still held and nobody waits for
// its end: until now the file is what it was.
func Leased(f *os.File) bool {
	kind, err := unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind == unix.F_RDLCK
}
