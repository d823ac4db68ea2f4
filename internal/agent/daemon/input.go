package daemon

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// input is a process's standard input, by position, so that what is sent twice
// is written once.
type input struct {
	turn     chan struct{} // whoever writes holds it
	f        *os.File      // nil if there is none
	terminal bool
	taken    uint64
	last     byte // that was written
	ended    bool
}

// inputTime is how long one call waits for the process to read.
const inputTime = 2 * time.Second

func newInput(f *os.File, terminal bool) *input {
	in := &input{turn: make(chan struct{}, 1), f: f, terminal: terminal}
	in.turn <- struct{}{}
	return in
}

// write writes what of data was not written before, as far as the process takes
// it in a short time, and returns the position behind it.
func (in *input) write(ctx context.Context, at uint64, data []byte, end bool) (uint64, error) {
	select {
	case <-in.turn:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { in.turn <- struct{}{} }()
	switch {
	case at > in.taken:
		return in.taken, wrong("cannot write input from position %d: only %d bytes came before", at, in.taken)
	case at+uint64(len(data)) < at:
		return in.taken, wrong("cannot write input from position %d: it is too far", at)
	case at+uint64(len(data)) <= in.taken:
		data = nil
	default:
		data = data[in.taken-at:]
	}
	if in.f == nil {
		return in.taken, wrong("cannot write input: the process has none")
	}
	if in.ended && len(data) > 0 {
		return in.taken, wrong("cannot write input: its end was sent")
	}
	n, err := in.put(ctx, data)
	if err != nil || n < len(data) || !end || in.ended {
		return in.taken, err
	}
	return in.taken, in.finish(ctx)
}

// put writes to the process until inputTime is over.
func (in *input) put(ctx context.Context, data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	_ = in.f.SetWriteDeadline(time.Now().Add(inputTime))
	stop := context.AfterFunc(ctx, func() { _ = in.f.SetWriteDeadline(time.Now()) })
	defer stop()
	n, err := in.f.Write(data)
	in.taken += uint64(n)
	if n > 0 {
		in.last = data[n-1]
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = nil
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, os.ErrClosed):
		err = wrong("cannot write input: the process has closed it")
	}
	return n, err
}

// finish tells the process that nothing follows. A terminal has a character for
// that (VEOF, termios(3)), which ends a line if one has begun, and the input if
// it comes at a line's beginning.
func (in *input) finish(ctx context.Context) error {
	in.ended = true
	if !in.terminal {
		_ = in.f.Close()
		return nil
	}
	eof := byte(4)
	if rc, err := in.f.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) {
			if t, err := unix.IoctlGetTermios(int(fd), unix.TCGETS); err == nil && t.Cc[unix.VEOF] != 0 {
				eof = t.Cc[unix.VEOF]
			}
		})
	}
	keys := []byte{eof}
	if in.taken > 0 && in.last != '\n' {
		keys = []byte{eof, eof}
	}
	taken := in.taken
	_, err := in.put(ctx, keys)
	in.taken = taken
	if errors.Is(err, io.ErrShortWrite) {
		return nil
	}
	return err
}

// close is for when the process has ended: whoever writes is woken. A terminal
// is closed by its reader.
func (in *input) close() {
	if in.f != nil && !in.terminal {
		in.f.Close()
	}
}
