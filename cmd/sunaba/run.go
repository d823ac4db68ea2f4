package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/terminal"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// runCommand is `sunaba run`.
func runCommand(args []string) int {
	f, err := parseRun(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return failed(f, invalid(err))
	}
	signal.Ignore(syscall.SIGPIPE) // writing says so; the box has to be cleared first
	// The first signal ends the box in order. A second one ends this process at
	// once, as does any that comes when the box is gone and only the answer has
	// to be written: the kernel then ends the box, and its janitor clears up.
	// What nohup(1) made us ignore stays ignored.
	signals := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	ctx, cancel := signal.NotifyContext(context.Background(), signals...)
	defer cancel()
	context.AfterFunc(ctx, cancel)
	rep, err := run(ctx, f)
	cancel()
	if rep == nil {
		return failed(f, err)
	}
	return answer(f, rep)
}

// run builds the request and runs it. A nil report means that it never came to
// a box.
func run(ctx context.Context, f *runFlags) (*box.Report, error) {
	prog, err := programOf(f, os.Stdin)
	if err != nil {
		return nil, invalid(err)
	}
	extra, err := extraSeeds(f)
	if err != nil {
		return nil, invalid(err)
	}
	seeds := append(prog.seeds, extra...)
	if err := engine.Distinct(seeds); err != nil {
		return nil, err
	}
	if f.daemon {
		return runAtDaemon(ctx, f, prog, seeds)
	}
	if len(f.cfg.Volumes) > 0 {
		return nil, box.Errorf(box.Unsupported, "run", "cannot use volume %q: a run without a daemon keeps nothing", f.cfg.Volumes[0].Name).
			WithHint("start `sunaba serve`, and add --daemon")
	}
	req := engine.Request{
		Policy:  f.cfg.Request(),
		User:    f.cfg.User,
		Command: box.Command{Argv: prog.argv, Env: engine.Environment(f.cfg.User, f.cfg.Environ()...), User: f.cfg.User},
		Capture: f.format == "json",
		Collect: f.format == "json",
	}
	req.Policy.TierFlag = box.TierName(f.tier)
	if f.net != nil {
		req.Policy.Reach = f.net.JSON()
	}
	req.Policy.AllowWeaker, req.Policy.MustNotBeWeak = f.allowWeaker, f.strict
	req.Policy.Spec.Tenant, req.Policy.Spec.Principal = "local", "cli"
	req.Policy.Spec.Seeds = seeds
	if f.out != "" {
		if req.Out, err = openOut(f.out); err != nil {
			return nil, invalid(err)
		}
		defer req.Out.Close()
	}
	state, err := stateDir(f.state)
	if err != nil {
		return nil, err
	}
	progress := terminal.NewProgress(os.Stderr)
	defer progress.Stop()
	req.Phase = func(what string) {
		if what == engine.PhaseRunning {
			debug.SetGCPercent(100) // output flows from here on: see main
		}
		progress.Phase(what)
	}
	e := newEngine(state, common{
		debug: os.Getenv("SUNABA_DEBUG"),
		images: frame.Images{Prefixes: f.cfg.HostPrefixes, Progress: func(done, total int64, what string) {
			progress.Phase(fmt.Sprintf("making the base image: %d of %d MiB, %s", done>>20, total>>20, stream.Clean([]byte(what))))
		}},
	})
	gateway := newKeeper(f.resolvers, nil, slog.New(slog.DiscardHandler))
	e.Egress = gateway
	defer gateway.Close()
	if f.tty || interactive(f) {
		return session(ctx, e, req, progress, f)
	}
	if !prog.eatsStdin {
		// Reading from a terminal in the background ends input; it does not
		// stop this process, which keeps the clock.
		signal.Ignore(syscall.SIGTTIN)
		req.Stdin = os.Stdin
	}
	if f.format == "json" {
		return e.Run(ctx, req)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var out, errs shown
	req.Stdout, req.Stderr = out.to(os.Stdout, progress, cancel), errs.to(os.Stderr, progress, cancel)
	rep, err := e.Run(ctx, req)
	out.close()
	errs.close()
	if rep.Cause == box.Canceled {
		f.unread = cmp.Or(out.failed, errs.failed)
	}
	f.midLine = errs.line.open || errs.clean != nil && (out.line.open && out.clean != nil ||
		rep.Cause == box.Canceled && terminal.IsTerminal(os.Stdin)) // there is a ^C on the line
	return rep, err
}

// shown is one stream of live output: cleaned if a terminal would act on it,
// the bytes themselves otherwise. When it cannot be written any more, the run
// has no purpose and is ended.
type shown struct {
	w      io.Writer
	clean  *stream.Cleaner
	end    context.CancelCauseFunc
	failed error
	line   line
}

func (s *shown) to(f *os.File, p *terminal.Progress, end context.CancelCauseFunc) io.Writer {
	s.w, s.end = f, end
	if terminal.IsTerminal(f) {
		s.clean = stream.NewCleaner(p.Writer(f))
		s.w = s.clean
	}
	return s
}

func (s *shown) Write(p []byte) (int, error) {
	s.line.note(p)
	n, err := s.w.Write(p)
	if err != nil && s.failed == nil {
		s.failed = err
		s.end(&box.Stop{Cause: box.Canceled})
	}
	return n, err
}

// line knows whether the last line of a stream is still without an end.
type line struct{ open bool }

func (l *line) note(p []byte) {
	if len(p) > 0 {
		l.open = p[len(p)-1] != '\n'
	}
}

func (s *shown) close() {
	if s.clean != nil {
		_ = s.clean.Close() // a terminal that is gone
	}
}

// openOut opens the folder for results; its last part may be made.
func openOut(name string) (*hostfs.Dir, error) {
	if err := os.Mkdir(name, 0o755); err != nil && !os.IsExist(err) {
		return nil, fmt.Errorf("cannot make output folder: %w", err)
	}
	return hostfs.OpenDir(name)
}
