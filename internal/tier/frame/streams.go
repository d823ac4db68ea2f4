package frame

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// pumpSize is the buffer between a pipe and its writer: all that is ever held
// of a program's output on its way.
const pumpSize = 32 << 10

// drainTime is how long a stream may stay open after the program's end because
// something in the background still holds it.
const drainTime = 100 * time.Millisecond

// deliverTime is how long a caller's writer may block once the program has
// ended and the caller wants the run to be over.
const deliverTime = 2 * time.Second

// pipeSize is the most that a pipe holds unless somebody asks for more, pipe(7);
// a terminal holds less. drainBytes is how much a stream may still deliver after
// the program's end: the contents of a few pipes, as of a pipeline that
// finishes, but not all that a process in the background has to say.
const (
	pipeSize   = 64 << 10
	drainBytes = 4 * pipeSize
)

// streams are the ends of a program's standard streams.
type streams struct {
	guest  [3]*os.File
	master *os.File // the terminal, if there is one

	in       *os.File // write end of stdin
	out, err *os.File // read ends
	st       box.Streams

	ended chan struct{} // closed when the program has ended
	pumps sync.WaitGroup
	lost  atomic.Bool // the caller's writer refused something
}

// openStreams makes the streams of a program, and the terminal by pty if it is
// to have one.
func openStreams(cmd box.Command, st box.Streams, pty func(box.WindowSize) (master, replica *os.File, err error)) (*streams, error) {
	s := &streams{st: st, ended: make(chan struct{})}
	if cmd.TTY != nil {
		master, replica, err := pty(*cmd.TTY)
		if err != nil {
			return nil, err
		}
		s.master, s.out = master, master
		s.guest = [3]*os.File{replica, replica, replica}
		return s, nil
	}
	var err error
	if st.Stdin == nil {
		s.guest[0], err = os.Open(os.DevNull)
	} else {
		s.guest[0], s.in, err = os.Pipe()
	}
	if err == nil {
		s.out, s.guest[1], err = os.Pipe()
	}
	if err == nil {
		s.err, s.guest[2], err = os.Pipe()
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("cannot make streams: %w", err)
	}
	return s, nil
}

// give makes the program's ends the box's user's, who may then open them again
// by a name such as /dev/stderr.
func (s *streams) give(uid, gid int) error {
	for i, f := range s.guest {
		if i == 0 && s.master == nil && s.in == nil {
			continue // the host's /dev/null, open to all
		}
		if err := f.Chown(uid, gid); err != nil {
			return fmt.Errorf("cannot give streams to the box's user: %w", err)
		}
	}
	return nil
}

// pumpInput moves the caller's input until it ends, or until the program does.
// A caller's reader that blocks is left to itself: what it returns later is
// lost, as is what the program has not read.
func (s *streams) pumpInput() {
	if s.st.Stdin == nil {
		return
	}
	in := s.in
	if s.master != nil {
		in = s.master
	}
	go func() {
		_, _ = io.Copy(in, s.st.Stdin)
		if s.master == nil {
			in.Close()
		}
	}()
}

// pumpOutput moves what the program writes, until the end of the streams or
// until shortly after the program's.
func (s *streams) pumpOutput() {
	s.pumpOut(s.out, s.st.Stdout)
	if s.master == nil {
		s.pumpOut(s.err, s.st.Stderr)
	}
}

func (s *streams) pumpOut(src *os.File, dst io.Writer) {
	if dst == nil {
		dst = io.Discard
	}
	s.pumps.Add(1)
	go func() {
		defer s.pumps.Done()
		if !copyUntil(dst, src, s.ended) {
			s.lost.Store(true)
		}
	}()
}

// copyUntil copies src to dst until src ends. Once ended is closed it takes
// what is there and gives a holder in the background drainTime to close. When
// dst fails, the rest is read and dropped: the program must not block on a
// reader that has gone. It reports whether dst took all.
func copyUntil(dst io.Writer, src *os.File, ended <-chan struct{}) (delivered bool) {
	delivered = true
	stop, woken := make(chan struct{}), make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-ended:
			_ = src.SetReadDeadline(time.Now()) // wakes a blocked read; the rest is read below
			close(woken)
		case <-stop:
		}
	}()
	buf := make([]byte, pumpSize)
	read := func() (int, error) {
		return host.ReadToEnd(func() (int, error) { return src.Read(buf) })
	}
	write := func(n int) {
		if n > 0 && delivered {
			_, err := dst.Write(buf[:n])
			delivered = err == nil
		}
	}
	over := func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	for !over() {
		n, err := read()
		write(n)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return delivered // end of file, or a terminal whose other side is closed
		}
	}
	<-woken // before deadlines are set here
	// All that the program wrote is in the pipe by now, however long the
	// writing of it takes.
	deadline := time.Now().Add(drainTime)
	for taken := 0; taken < drainBytes; { // more comes from a holder in the background
		n, err := host.ReadNow(src, buf)
		write(n)
		taken += n
		switch {
		case err == nil && n == 0:
			return delivered
		case err == nil:
			if taken >= pipeSize && time.Now().After(deadline) {
				return delivered // still written to: a holder in the background
			}
		case errors.Is(err, syscall.EAGAIN):
			if !time.Now().Before(deadline) {
				return delivered
			}
			_ = src.SetReadDeadline(deadline)
			n, err := read()
			write(n)
			taken += n
			if err != nil {
				return delivered
			}
			_ = src.SetReadDeadline(time.Now())
		default:
			return delivered
		}
	}
	return delivered
}

// drain is called when the program has ended. It returns true when all its
// output has been delivered, however slow the caller's writer is, and false if
// the writer failed, or ctx ended and it did not take the rest soon after.
func (s *streams) drain(ctx context.Context) bool {
	if s.in != nil {
		s.in.Close()
	}
	close(s.ended)
	done := make(chan struct{})
	go func() {
		s.pumps.Wait()
		close(done)
	}()
	select {
	case <-done:
		return !s.lost.Load()
	case <-ctx.Done():
	}
	t := time.NewTimer(deliverTime)
	defer t.Stop()
	select {
	case <-done:
		return !s.lost.Load()
	case <-t.C:
		return false
	}
}

// closeGuest gives up our copies of the guest's ends, so that a stream ends
// when the guest's last holder does.
func (s *streams) closeGuest() {
	for i, f := range s.guest {
		if f != nil {
			f.Close() // a terminal's three are one file: closing it again is harmless
		}
		s.guest[i] = nil
	}
}

func (s *streams) close() {
	s.closeGuest()
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			f.Close()
		}
	}
}

// resize follows the caller's terminal. The guest's kernel reads the size from
// the host's terminal, and the host's kernel tells of the change; see
// runner.takeTerminal.
func (s *streams) resize(ctx context.Context, sizes <-chan box.WindowSize) {
	for {
		select {
		case <-s.ended:
			return
		case <-ctx.Done():
			return
		case ws, ok := <-sizes:
			if !ok {
				return
			}
			_ = host.ResizePTY(s.master, ws) // fails only when the terminal is gone
		}
	}
}
