package terminal

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/internal/stream"
)

const (
	progressDelay = time.Second            // shorter waits need no explanation
	progressTick  = 250 * time.Millisecond // how late a new phase may be shown
	clearLine     = "\r\x1b[K"
)

// Progress is one status line at the bottom of a terminal: the phase and the
// time since the start. It appears after one second and is rubbed out by
// [Progress.Stop] and before any output through [Progress.Writer]. On anything
// but a terminal it writes nothing, ever. It is safe for concurrent use.
type Progress struct {
	f       *os.File // nil if nothing is ever to be shown
	start   time.Time
	phase   atomic.Pointer[string]
	stop    func()        // ends the ticks
	stopped chan struct{} // closed by Stop
	done    chan struct{} // closed when no more ticks are handled

	mu      sync.Mutex // guards the terminal and what follows
	over    bool
	shown   string // what the line shows now, empty if it is not there
	midLine bool   // other output ended without a newline: no place for a line
}

// NewProgress starts a progress line on f, usually standard error. f may be
// nil. Stop must be called.
func NewProgress(f *os.File) *Progress {
	ticker := time.NewTicker(progressTick)
	return newProgress(f, time.Now(), ticker.C, ticker.Stop)
}

// newProgress takes its time from ticks, each of which is the time now.
func newProgress(f *os.File, start time.Time, ticks <-chan time.Time, stop func()) *Progress {
	p := &Progress{start: start, stop: stop, stopped: make(chan struct{}), done: make(chan struct{})}
	p.Phase("")
	if !IsTerminal(f) {
		close(p.done)
		return p
	}
	p.f = f
	go func() {
		defer close(p.done)
		for {
			select {
			case now := <-ticks:
				p.draw(now.Sub(p.start))
			case <-p.stopped:
				return
			}
		}
	}()
	return p
}

// Phase sets what is being done, such as "starting box". It takes effect at the
// next tick and never waits for the terminal.
func (p *Progress) Phase(text string) { p.phase.Store(&text) }

// Stop rubs the line out. When it returns nothing more will be written. Only
// the first call acts; each waits until that is done.
func (p *Progress) Stop() {
	p.mu.Lock()
	if !p.over {
		p.over = true
		p.clear()
		p.stop()
		close(p.stopped)
	}
	p.mu.Unlock()
	<-p.done
}

// Writer returns a writer for other output to the same terminal: it rubs the
// line out first, and the line does not come back before the output is at the
// start of a line.
func (p *Progress) Writer(w io.Writer) io.Writer {
	if p.f == nil {
		return w
	}
	return &progressWriter{p, w}
}

type progressWriter struct {
	p *Progress
	w io.Writer
}

// Write implements io.Writer.
func (w *progressWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if len(b) == 0 {
		return w.w.Write(b)
	}
	w.p.clear()
	w.p.midLine = b[len(b)-1] != '\n'
	return w.w.Write(b)
}

// clear rubs the line out. The caller holds mu. Nothing can be done about a
// terminal that is gone.
func (p *Progress) clear() {
	if p.shown != "" {
		p.shown = ""
		_, _ = io.WriteString(p.f, clearLine)
	}
}

// draw shows the line as it is after the time elapsed.
func (p *Progress) draw(elapsed time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.midLine || elapsed < progressDelay {
		return
	}
	width := 80
	if size, err := Size(p.f); err == nil && size.Cols > 0 {
		width = int(size.Cols)
	}
	// One cell stays free: a full line could wrap, and then the line that
	// is rubbed out is not the one that was written.
	line := fit(statusLine(*p.phase.Load(), elapsed), width-1)
	if line == p.shown || line == "" {
		return
	}
	p.shown = line
	_, _ = io.WriteString(p.f, clearLine+line)
}

// statusLine puts the time first: it is what may not be cut off.
func statusLine(phase string, elapsed time.Duration) string {
	elapsed = elapsed.Truncate(time.Second)
	if phase == "" {
		return fmt.Sprintf("[%s]", elapsed)
	}
	return fmt.Sprintf("[%s] %s", elapsed, stream.Clean([]byte(phase)))
}

// fit makes text one line that takes at most width cells. It counts two cells
// for every character from the Hangul block on, which is enough for any and too
// many for some.
func fit(text string, width int) string {
	var line []rune
	for _, r := range text {
		cell := 1
		if r >= 0x1100 {
			cell = 2
		}
		if width -= cell; width < 0 {
			break
		}
		if r == '\n' || r == '\t' {
			r = ' '
		}
		line = append(line, r)
	}
	return string(line)
}
