package keeper

import (
	"bufio"
	"io"
	"log/slog"
	"os"
	"strings"
)

// What is kept of what a gateway says on its standard error, which is why it does not
// start or how it died: this many lines of this many bytes. It never has this process's
// own, where it could read what somebody types, turn a terminal, or write over a log.
const (
	mostLines = 60
	longLine  = 300
)

// words are those of one gateway.
type words struct {
	done  chan struct{} // closed when it says nothing more
	first string
}

// hear reads until all who could say something have ended.
func (w *words) hear(r *os.File, log *slog.Logger) {
	defer close(w.done)
	defer r.Close()
	in := bufio.NewReaderSize(r, longLine)
	for range mostLines {
		line, err := in.ReadSlice('\n') // no more than its buffer
		if text := cleaned(strings.TrimRight(string(line), "\n"), longLine); text != "" {
			if w.first == "" {
				w.first = text
			}
			log.Error("the gateway says", "line", text)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
	_, _ = io.Copy(io.Discard, in)
}

// said is the first line of a gateway that has ended; empty if it said nothing, or
// could go on.
func (w *words) said() string {
	select {
	case <-w.done:
		return w.first
	default:
		return ""
	}
}
