package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/engine"
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
// is raw meanwhile: every key, Ctrl-C included, goes to the program. A second
// Ctrl-C within two seconds ends the box, whatever the program makes of it.
func session(ctx context.Context, e *engine.Engine, req engine.Request, progress *terminal.Progress) (*box.Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size := box.WindowSize{Rows: 24, Cols: 80}
	if terminal.IsTerminal(os.Stdout) {
		if s, err := terminal.Size(os.Stdout); err == nil {
			size = s
		}
		req.Resize = terminal.WatchSize(ctx, os.Stdout)
	}
	req.Command.TTY = &size
	term := os.Getenv("TERM")
	if term == "" {
		term = "dumb"
	}
	req.Command.Env = append(req.Command.Env, "TERM="+term)
	req.Stdin = os.Stdin
	var out io.Writer = os.Stdout
	if terminal.IsTerminal(os.Stdout) {
		f := stream.NewInteractive(progress.Writer(os.Stdout))
		defer f.Close()
		out = f
	}
	req.Stdout = out
	if terminal.IsTerminal(os.Stdin) {
		restore, err := terminal.MakeRaw(os.Stdin)
		if err != nil {
			return nil, box.Errorf(box.Fault, "run", "%w", err)
		}
		defer restore()
		req.Stdin = &interruptReader{r: os.Stdin, second: func() { cancel(&box.Stop{Cause: box.Canceled}) }}
	}
	return e.Run(ctx, req)
}

const ctrlC = 3

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
