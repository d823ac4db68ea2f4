package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/terminal"
)

// interactive says whether a line that did not ask for a terminal gets one: a
// command of one word, such as `sunaba run -- bash`, typed at a terminal.
func interactive(f *runFlags) bool {
	return f.command && len(f.args) == 1 && f.format == "text" &&
		terminal.IsTerminal(os.Stdin) && terminal.IsTerminal(os.Stdout)
}

// session runs a program on a fresh terminal of its own. The caller's terminal
// is raw while it runs: every key, Ctrl-C included, goes to the program. A
// second Ctrl-C within two seconds ends the box, whatever the program makes of
// it.
func session(ctx context.Context, e *engine.Engine, req engine.Request, progress *terminal.Progress, rf *runFlags) (*box.Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size := box.WindowSize{Rows: 24, Cols: 80}
	if f := firstTerminal(os.Stdout, os.Stdin); f != nil {
		if s, err := terminal.Size(f); err == nil && s.Rows > 0 && s.Cols > 0 {
			size = s
		}
		req.Resize = terminal.WatchSize(ctx, f)
	}
	req.Command.TTY = &size
	// What the filter lets through is what this kind of terminal can do.
	req.Command.Env = append(req.Command.Env, "TERM="+stream.Term)
	switch {
	case req.Capture: // the document alone goes to standard output
	case terminal.IsTerminal(os.Stdout):
		f := stream.NewInteractive(progress.Writer(os.Stdout))
		f.Bell = true
		defer f.Close()
		w := &watched{w: f}
		defer func() { rf.midLine = w.open }()
		req.Stdout = w
	default:
		req.Stdout = os.Stdout
	}
	if !terminal.IsTerminal(os.Stdin) {
		req.Stdin = &typedEnd{r: os.Stdin}
		return e.Run(ctx, req)
	}
	if !rf.asked.time {
		req.Policy.Spec.Limits.Timeout = 0
	}
	if r, ok := policy.RangeOf("max_output"); ok && !rf.asked.output && !req.Capture {
		req.Policy.Spec.Limits.Output = r.Max // nothing keeps it
	}
	req.Stdin = &interruptReader{r: os.Stdin, second: func() { cancel(&box.Stop{Cause: box.Canceled}) }}
	restore := func() {}
	defer func() { restore() }()
	req.Phase = func(phase string) {
		if phase != engine.PhaseRunning {
			restore() // before and after the program, Ctrl-C is ours
			progress.Phase(phase)
			return
		}
		progress.Stop() // the screen is the program's now
		raw, err := terminal.MakeRaw(os.Stdin)
		if err != nil {
			cancel(&box.Stop{Cause: box.Canceled}) // the terminal is gone
			return
		}
		restore = raw
	}
	return e.Run(ctx, req)
}

// watched is a writer that knows where its last line ends.
type watched struct {
	line
	w io.Writer
}

func (w *watched) Write(p []byte) (int, error) {
	w.note(p)
	return w.w.Write(p)
}

func firstTerminal(files ...*os.File) *os.File {
	for _, f := range files {
		if terminal.IsTerminal(f) {
			return f
		}
	}
	return nil
}

const ctrlC, ctrlD = 3, 4

// interruptReader passes keys on and watches for two Ctrl-C in a row.
type interruptReader struct {
	r      io.Reader
	second func()
	last   time.Time
}

func (i *interruptReader) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	for range bytes.Count(p[:n], []byte{ctrlC}) {
		now := time.Now()
		if now.Sub(i.last) < 2*time.Second {
			i.second()
		}
		i.last = now
	}
	return n, err
}

// typedEnd types what a pipe or a file holds, and then what a person types at
// the end of input. A terminal forgets that key when it comes while a shell is
// changing modes, hence a few times.
type typedEnd struct {
	r    io.Reader
	ends int
}

const (
	typedEnds = 20
	endPause  = 250 * time.Millisecond
)

func (t *typedEnd) Read(p []byte) (int, error) {
	if t.ends == 0 {
		n, err := t.r.Read(p)
		if n > 0 || err == nil || len(p) == 0 {
			return n, nil
		}
	} else {
		<-time.After(endPause)
	}
	if t.ends++; t.ends > typedEnds {
		return 0, io.EOF
	}
	p[0] = ctrlD
	return 1, nil
}
