package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/terminal"
)

// execCall is what exec and shell were asked for.
type execCall struct {
	dir     string
	user    string
	tty     bool
	timeout string
	detach  bool
}

func execFlags(fs *flag.FlagSet, b *boxCall) {
	fs.Func("e", "", b.pair)
	fs.StringVar(&b.exec.dir, "w", "", "")
	fs.StringVar(&b.exec.user, "u", "", "")
	fs.BoolVar(&b.exec.tty, "t", false, "")
	fs.StringVar(&b.exec.timeout, "timeout", "", "")
	fs.BoolVar(&b.exec.detach, "detach", false, "")
}

func shellFlags(fs *flag.FlagSet, b *boxCall) {
	fs.StringVar(&b.exec.user, "u", "", "")
	fs.StringVar(&b.exec.dir, "w", "", "")
}

func boxShell(ctx context.Context, b *boxCall) (int, error) {
	if !terminal.IsTerminal(os.Stdin) || !terminal.IsTerminal(os.Stdout) {
		return 0, box.Errorf(box.Invalid, "shell", "cannot open a shell: standard input and output are no terminal").
			WithHint("`sunaba box exec %s bash` takes commands from a pipe", b.args[0])
	}
	b.exec.tty = true
	b.args = append(b.args, "bash")
	return boxExec(ctx, b)
}

// spec says what to start.
func (b *boxCall) spec() (box.ProcessSpec, error) {
	s := box.ProcessSpec{Command: box.Command{Argv: b.args[1:], Env: b.pairs, Dir: b.exec.dir, User: box.User(b.exec.user)}, Grace: 2 * time.Second}
	if b.exec.timeout != "" {
		t, err := config.ParseDuration(b.exec.timeout)
		if err != nil {
			return s, flagValue("timeout", invalid(err))
		}
		s.Timeout = t
	}
	if b.exec.tty {
		size := box.WindowSize{Rows: 24, Cols: 80}
		if f := firstTerminal(os.Stdout, os.Stdin); f != nil {
			if got, err := terminal.Size(f); err == nil && got.Rows > 0 && got.Cols > 0 {
				size = got
			}
		}
		s.TTY = &size
		s.Env = append(s.Env, "TERM="+stream.Term)
	}
	return s, nil
}

func boxExec(ctx context.Context, b *boxCall) (int, error) {
	_, g, err := b.guest(ctx)
	if err != nil {
		return 0, err
	}
	spec, err := b.spec()
	if err != nil {
		return 0, err
	}
	switch {
	case b.exec.detach && b.exec.tty:
		return 0, box.Errorf(box.Invalid, "exec", "cannot give a terminal to a program that is left to itself: choose -t or --detach")
	case b.exec.detach:
		p, err := g.Start(ctx, spec)
		if err != nil {
			return 0, err
		}
		return 0, b.show(processOut{PID: p.PID, Tag: p.Tag, Argv: p.Argv, User: p.User, Started: p.Started}, func() { fmt.Println(p.PID) })
	}
	if !terminal.IsTerminal(os.Stdin) || b.exec.tty {
		spec.Stdin = true
	}
	return b.attached(ctx, g, spec)
}

// attached runs a program and shows what it writes. It ends with this process.
func (b *boxCall) attached(ctx context.Context, g *client.Guest, spec box.ProcessSpec) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, end := newScreen(b.format == "json", spec.TTY != nil, cancel)
	restore := func() {}
	defer func() { restore() }()
	var ref box.ProcessRef
	begun := func(p box.Process) {
		ref.PID = p.PID
		if spec.TTY != nil && terminal.IsTerminal(os.Stdin) {
			if raw, err := terminal.MakeRaw(os.Stdin); err == nil {
				restore = raw
			}
			if f := firstTerminal(os.Stdout, os.Stdin); f != nil {
				go resize(ctx, g, ref, terminal.WatchSize(ctx, f))
			}
		}
		if spec.Stdin {
			var in io.Reader = os.Stdin
			if spec.TTY != nil && !terminal.IsTerminal(os.Stdin) {
				in = &typedEnd{r: os.Stdin}
			}
			go feed(ctx, g, ref, in)
		}
	}
	err := g.Attached(ctx, spec, begun, out.event)
	out.close()
	restore()
	if err == nil {
		_ = g.Forget(ctx, ref) // all of it was shown
	}
	switch {
	case out.failed() != nil: // nobody reads what it writes
		return exitCanceled, nil
	case err != nil:
		return 0, err
	case b.format == "json":
		return endCode(*end), b.show(out.document(*end), nil)
	}
	if end.Cause != box.Exited && end.Cause != box.Signaled {
		say("the program was ended: " + endWords(*end, spec))
	}
	return endCode(*end), nil
}

// endCode is the exit code for a program's end, as for `sunaba run`.
func endCode(e box.End) int {
	return exitCode(&box.Report{Cause: e.Cause, ExitCode: &e.ExitCode, Signal: &e.Signal})
}

func endWords(e box.End, s box.ProcessSpec) string {
	switch e.Cause {
	case box.Deadline:
		if s.Timeout > 0 {
			return fmt.Sprintf("deadline of %gs", s.Timeout.Seconds())
		}
		return "its deadline"
	case box.OutOfMemory:
		return "the box has no memory left"
	case box.Lost:
		return "it is gone, and nobody saw how it ended"
	}
	return string(e.Cause)
}

// feed writes standard input to a program until either ends.
func feed(ctx context.Context, g box.Processes, p box.ProcessRef, in io.Reader) {
	buf := make([]byte, 64<<10)
	at := int64(0)
	for {
		n, err := in.Read(buf)
		piece := box.Input{At: at, Data: buf[:n], End: err != nil}
		for first := true; first || len(piece.Data) > 0; first = false {
			next, ierr := g.Input(ctx, p, piece)
			if ierr != nil || next < piece.At || next == piece.At && len(piece.Data) > 0 {
				return // it ended, or closed its end
			}
			piece.Data = piece.Data[min(next-piece.At, int64(len(piece.Data))):]
			piece.At = next
		}
		at = piece.At
		if err != nil {
			return
		}
	}
}

func resize(ctx context.Context, g box.Processes, p box.ProcessRef, sizes <-chan box.WindowSize) {
	for {
		select {
		case s := <-sizes:
			_ = g.Resize(ctx, p, s) // a picture of the wrong size is still one
		case <-ctx.Done():
			return
		}
	}
}
