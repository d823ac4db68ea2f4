package host

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
)

// What a kernel says that was asked between the last bytes and the close.
func TestAFirstEIOIsNotTheEndOfATerminal(t *testing.T) {
	for _, c := range []struct {
		says []any
		n    int
		err  error
	}{
		{[]any{unix.EIO, 256}, 256, nil},
		{[]any{&os.PathError{Op: "read", Err: unix.EIO}, 256}, 256, nil},
		{[]any{unix.EIO, unix.EIO, 256}, 0, unix.EIO},
		{[]any{16, unix.EIO}, 16, nil},
		{[]any{unix.EAGAIN, 16}, 0, unix.EAGAIN},
		{[]any{io.EOF, 16}, 0, io.EOF},
	} {
		says := c.says
		n, err := ReadToEnd(func() (int, error) {
			next := says[0]
			says = says[1:]
			if n, ok := next.(int); ok {
				return n, nil
			}
			return 0, next.(error)
		})
		if n != c.n || !errors.Is(err, c.err) {
			t.Errorf("%v: %d, %v", c.says, n, err)
		}
	}
}

// The end of a terminal's output is there for whoever asks without a pause: about
// one round in 6000 needs the second read.
func TestAllThatWasWrittenToATerminalIsReadBeforeItsEnd(t *testing.T) {
	const line = "0123456789abcdef"
	for round := range 3000 {
		master, replica, err := OpenPTY(box.WindowSize{Rows: 24, Cols: 80})
		if err != nil {
			t.Skipf("no pseudo-terminals here: %v", err)
		}
		go func() {
			for range 8 {
				_, _ = replica.WriteString(line)
			}
			replica.Close()
		}()
		got := 0
		for err = unix.EAGAIN; err == nil || err == unix.EAGAIN; {
			var n int
			n, err = ReadNow(master, make([]byte, 64))
			got += n
		}
		master.Close()
		if got != 8*len(line) || err != unix.EIO {
			t.Fatalf("round %d: %d bytes, then %v", round, got, err)
		}
	}
}
