package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/creack/pty"
	"github.com/sunaba-dev/sunaba/box"
)

// OpenPTY opens a fresh pseudo-terminal of the given size. It has the kernel's
// default line discipline (echo, line editing, signals for keys); a program
// that wants another sets it, or the caller does with [MakeRaw] on the replica.
//
// The replica is for the program in the box; close it as soon as the program
// has its own descriptor. Reads of the master end when no replica is open any
// more, see [Output]. Closing the master ends a blocked read of it and hangs up
// the program's terminal. Both are closed on exec.
func OpenPTY(size box.WindowSize) (master, replica *os.File, err error) {
	first, replica, err := pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open pseudo-terminal: %w", err)
	}
	defer first.Close()
	if master, err = pollable(first); err == nil {
		err = Resize(master, size)
	}
	if err != nil {
		if master != nil {
			master.Close()
		}
		replica.Close()
		return nil, nil, err
	}
	return master, replica, nil
}

// pollable returns a copy of f that was made non-blocking before the os package
// saw it. Calls of Fd, which the pty and term packages make, set a file that
// os opened to blocking mode for good: then Close cannot end a Read.
func pollable(f *os.File) (*os.File, error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("cannot copy %s: %w", f.Name(), err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("cannot make %s non-blocking: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// Resize sets the size of a pseudo-terminal by its master. The kernel tells the
// programs at its replica with SIGWINCH if the size changed.
func Resize(master *os.File, size box.WindowSize) error {
	if err := pty.Setsize(master, &pty.Winsize{Rows: size.Rows, Cols: size.Cols}); err != nil {
		return fmt.Errorf("cannot resize %s: %w", master.Name(), err)
	}
	return nil
}

// Output returns a reader of what programs write to the terminal of master. It
// ends with io.EOF when the last replica is closed, which Linux reports as EIO,
// or when master is closed.
func Output(master *os.File) io.Reader { return output{master} }

type output struct{ master *os.File }

// Read implements io.Reader.
func (o output) Read(p []byte) (int, error) {
	n, err := o.master.Read(p)
	if errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return n, err
}
