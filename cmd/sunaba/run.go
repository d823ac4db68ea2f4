package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/terminal"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
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
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	rep, err := run(ctx, f)
	if rep == nil {
		return failed(f, err)
	}
	answer(f, rep)
	return exitCode(rep)
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
	req := engine.Request{
		Policy:  f.cfg.Request(),
		User:    f.cfg.User,
		Command: box.Command{Argv: prog.argv, Env: environment(f), User: f.cfg.User},
		Capture: f.format == "json",
		Collect: f.format == "json",
	}
	req.Policy.TierFlag = box.TierName(f.tier)
	req.Policy.AllowWeaker, req.Policy.MustNotBeWeak = f.allowWeaker, f.strict
	req.Policy.Spec.Tenant, req.Policy.Spec.Principal = "local", "cli"
	req.Policy.Spec.Seeds = append(prog.seeds, extra...)
	if f.out != "" {
		if req.Out, err = openOut(f.out); err != nil {
			return nil, invalid(err)
		}
		defer req.Out.Close()
	}
	state, err := stateDir(f.state)
	if err != nil {
		return nil, box.Errorf(box.Unusable, "run", "cannot use state folder: %w", err).
			WithHint("name a folder of your own with --state or SUNABA_STATE")
	}
	progress := terminal.NewProgress(os.Stderr)
	defer progress.Stop()
	req.Phase = progress.Phase
	e, err := newEngine(state, gvisor.Config{
		Debug: os.Getenv("SUNABA_DEBUG"), Janitor: true, Prefixes: f.cfg.HostPrefixes,
		Progress: func(done, total int64, what string) {
			progress.Phase(fmt.Sprintf("making the base image: %d of %d MiB, %s", done>>20, total>>20, stream.Clean([]byte(what))))
		},
	})
	if err != nil {
		return nil, err
	}
	if f.tty || interactive(f) {
		return session(ctx, e, req, progress)
	}
	if !prog.eatsStdin {
		req.Stdin = os.Stdin
	}
	if f.format == "text" {
		out, done := shown(os.Stdout, progress)
		errs, doneErr := shown(os.Stderr, progress)
		req.Stdout, req.Stderr = out, errs
		defer done()
		defer doneErr()
	}
	return e.Run(ctx, req)
}

// shown is where live output goes: cleaned if a terminal would act on it, the
// bytes themselves otherwise.
func shown(f *os.File, p *terminal.Progress) (w io.Writer, done func()) {
	if !terminal.IsTerminal(f) {
		return f, func() {}
	}
	c := stream.NewCleaner(p.Writer(f))
	return c, func() { _ = c.Close() }
}

// environment is all that the program sees. PATH comes from the image.
func environment(f *runFlags) []string {
	env := []string{
		"HOME=/home/user", "USER=user", "LOGNAME=user", "LANG=C.UTF-8", "SHELL=/bin/bash",
		"PYTHONUNBUFFERED=1", // output is streamed, not kept until the end
	}
	if f.cfg.User == box.UserRoot {
		env = []string{"HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8", "SHELL=/bin/bash", "PYTHONUNBUFFERED=1"}
	}
	return append(env, f.cfg.Environ()...)
}

// openOut opens the folder for results; its last part may be made.
func openOut(name string) (*hostfs.Dir, error) {
	if err := os.Mkdir(name, 0o755); err != nil && !os.IsExist(err) {
		return nil, fmt.Errorf("cannot make output folder: %w", err)
	}
	return hostfs.OpenDir(name)
}
