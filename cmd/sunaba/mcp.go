package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/server/mcp"
)

// mcpFlags are those of `sunaba mcp`.
type mcpFlags struct {
	state   string
	server  serverFlags
	set     sandboxFlags
	verbose bool

	resolvers []netip.AddrPort // instead of the host's
}

func mcpUsage(w io.Writer) {
	fmt.Fprint(w, `usage:
  sunaba mcp [flags]        tools for a model, on standard input and output

A client starts this and speaks the Model Context Protocol with it. Without
--server it makes the boxes itself, and they end with it; with --server they
belong to a daemon (`+"`sunaba serve`"+`), which also serves the same tools at /mcp.

flags:
`)
	describe(w, "--server URL", "use this daemon; its key comes from where `sunaba box` has it")
	describe(w, "--state FOLDER", "for images and running boxes, without --server (default "+stateHelp+")")
	describe(w, "--config FILE", "of its sandbox section, what is set holds for every box: a model cannot change it")
	describe(w, "--resolver ADDRESS", "a DNS server for names that boxes may reach, instead of this host's; without --server; may be repeated")
	describe(w, "--verbose", "log on standard error")
	fmt.Fprint(w, "\nand the keys of the configuration file that `sunaba run -h` lists, as --memory SIZE: they hold for every box too.\n")
}

// mcpCommand is `sunaba mcp`.
func mcpCommand(args []string) int {
	var f mcpFlags
	fs := newFlags("sunaba mcp")
	fs.StringVar(&f.server.url, "server", "", "")
	fs.StringVar(&f.state, "state", "", "")
	fs.BoolVar(&f.verbose, "verbose", false, "")
	fs.Func("resolver", "", addResolver(&f.resolvers))
	f.set.define(fs)
	err := parseFlags(fs, args, "mcp")
	switch {
	case errors.Is(err, flag.ErrHelp):
		mcpUsage(os.Stdout)
		return 0
	case err == nil && f.server.url != "" && len(f.resolvers) > 0:
		err = errors.New("cannot use --resolver with --server: `sunaba serve --resolver ADDRESS` is for all boxes of the daemon")
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("cannot use argument %q: mcp takes flags only", fs.Arg(0))
	}
	if err != nil {
		return complain(invalid(err))
	}
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	context.AfterFunc(ctx, cancel) // a second signal ends this process at once
	if err := serveMCP(ctx, f); err != nil {
		return complain(err)
	}
	return 0
}

func serveMCP(ctx context.Context, f mcpFlags) (err error) {
	log := slog.New(slog.DiscardHandler)
	if f.verbose {
		log = newLog(os.Stderr, "text")
	}
	cfg := mcp.Config{Logger: log}
	cfg.Version, _ = versions()
	var p *rules.Policy
	if cfg.Sandbox, p, err = f.set.withPolicy(); err != nil {
		return err
	}
	if p != nil {
		cfg.Reach = append([]string{}, reachWords(p)...)
	}
	caller := box.Caller{Tenant: "local", Principal: "mcp", Scopes: []box.Scope{box.ScopeRead, box.ScopeWrite, box.ScopeExec}}
	if f.server.url != "" {
		if cfg.Service, err = f.server.client(); err != nil {
			return err
		}
	} else {
		s, serr := newSession(ctx, f.state, f.resolvers, log)
		if serr != nil {
			return serr
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), sessionEnd)
			defer cancel()
			err = errors.Join(err, s.Close(ctx))
		}()
		cfg.Service = s
	}
	served := make(chan error, 1)
	go func() { served <- mcp.New(cfg).Serve(ctx, caller, os.Stdin, nopCloser{os.Stdout}) }()
	select {
	case err = <-served:
		if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	case <-ctx.Done(): // the reader of standard input may wait on
		return nil
	}
}

// sessionEnd is how long the boxes of a session have to be cleared away.
const sessionEnd = 30 * time.Second

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
