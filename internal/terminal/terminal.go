// Package terminal is what the command line needs at a terminal: to know
// whether it has one, to hand its keys and its size to a program in a box, and
// to say in one line what takes so long.
//
// Two terminals meet in an interactive run. The caller's own one is put into
// raw mode ([MakeRaw]), so that each key, Ctrl-C included, goes to the box
// unprocessed. The box gets a fresh pseudo-terminal (package host makes it), whose replica
// is the program's and whose master is ours: there the usual line discipline
// echoes, edits lines and turns Ctrl-C into a signal. The caller's terminal
// itself is never given to a box, because whoever can open it can type into
// it (TIOCSTI, CVE-2016-2779 among many).
//
// What a box prints is not safe to copy to the caller's terminal; that is the
// business of the stream package.
package terminal

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"golang.org/x/term"
)

// IsTerminal reports whether f is a terminal. A nil f is not.
func IsTerminal(f *os.File) bool {
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// MakeRaw puts the terminal f into raw mode: every byte that is typed arrives
// at once and as it is, nothing is echoed, and output is not changed. restore
// sets back what was before; it may be called any number of times, from any
// goroutine, and only the first call acts. Every way out of the program has to
// call it.
func MakeRaw(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("cannot make %s raw: %w", f.Name(), err)
	}
	var once sync.Once
	return func() {
		// Fails only if the terminal is gone, and then nothing is left to set.
		once.Do(func() { _ = term.Restore(fd, before) })
	}, nil
}

// Size returns the size of the terminal f.
func Size(f *os.File) (box.WindowSize, error) {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return box.WindowSize{}, fmt.Errorf("cannot get size of %s: %w", f.Name(), err)
	}
	return box.WindowSize{Rows: cells(rows), Cols: cells(cols)}, nil
}

func cells(n int) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

// WatchSize sends the size of the terminal f at once, so that a change before
// the call is not missed, and then whenever it changed (SIGWINCH), until ctx
// ends. A slow receiver gets the latest size and not those before. The channel
// is never closed: a receiver that selects on it need not check.
func WatchSize(ctx context.Context, f *os.File) <-chan box.WindowSize {
	sizes := make(chan box.WindowSize, 1)
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		defer signal.Stop(changed)
		for {
			if size, err := Size(f); err == nil {
				select {
				case <-sizes: // nobody took it; it is out of date
				default:
				}
				sizes <- size // has room: nobody else sends
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
