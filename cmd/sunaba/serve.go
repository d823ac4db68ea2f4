package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/server"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// defaultListen is where the daemon is found if nobody says otherwise.
const defaultListen = "127.0.0.1:7462"

// shutdownTime is how long requests have to end when the daemon is told to.
const shutdownTime = 5 * time.Second

// serveFlags are those of `sunaba serve`.
type serveFlags struct {
	state, listen string
	hosts, mounts []string
	networks      []netip.Prefix
	ttl, maxTTL   time.Duration
	maxPaused     time.Duration
	rules         tenant.Rules
	snapshots     snapshotBounds
	volumes       volumeBounds
	warm          int
	templates     string // file
	resolvers     []netip.AddrPort
	logFormat     string
	openMetrics   bool
	destroy       bool
}

func parseServe(args []string) (*serveFlags, error) {
	f := &serveFlags{rules: defaultRules(), warm: defaultWarm, snapshots: defaultSnapshots(), volumes: defaultVolumes(), ttl: time.Hour, maxTTL: 30 * 24 * time.Hour, maxPaused: 7 * 24 * time.Hour}
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	duration := func(to *time.Duration) func(string) error {
		return func(s string) (err error) { *to, err = config.ParseDuration(s); return err }
	}
	list := func(to *[]string) func(string) error {
		return func(s string) error { *to = append(*to, s); return nil }
	}
	fs.StringVar(&f.state, "state", "", "folder for boxes, images and the database (default "+stateHelp+")")
	fs.StringVar(&f.listen, "listen", defaultListen, "address and port")
	fs.Func("host", "a further name that the server is reached by; may be repeated", list(&f.hosts))
	fs.Func("allow-mount", "a folder of this host below which requests may mount; may be repeated", list(&f.mounts))
	fs.Func("allow-network", "a private network that rules in requests may name; may be repeated", func(s string) error {
		p, err := parseNetwork(s)
		f.networks = append(f.networks, p)
		return err
	})
	fs.Func("ttl", "life of a box that does not say (default 1h)", duration(&f.ttl))
	fs.Func("max-ttl", "the longest life of a box (default 720h)", duration(&f.maxTTL))
	fs.Func("max-paused", "for how long a box may be paused, then it is destroyed; 0 = no bound (default 168h)", duration(&f.maxPaused))
	fs.Int64Var(&f.rules.Share.Boxes, "max-boxes", f.rules.Share.Boxes, "boxes of one tenant at once; 0 = no bound")
	fs.Func("max-cpu", "cores of one tenant's boxes together", func(s string) (err error) {
		f.rules.Share.MilliCPU, err = config.ParseCPU(s)
		return err
	})
	fs.Func("max-memory", "memory of one tenant's boxes together", func(s string) (err error) {
		f.rules.Share.Memory, err = config.ParseSize(s)
		return err
	})
	fs.Func("max-snapshot", "size of one snapshot (default 8g)", func(s string) (err error) {
		f.snapshots.bytes, err = config.ParseSize(s)
		return err
	})
	fs.IntVar(&f.snapshots.count, "max-snapshots", f.snapshots.count, "snapshots of one tenant; 0 = no bound")
	fs.Func("max-snapshot-bytes", "size of one tenant's snapshots together; 0 = no bound (default 64g)", func(s string) (err error) {
		f.snapshots.together, err = config.ParseSize(s)
		return err
	})
	fs.IntVar(&f.volumes.count, "max-volumes", f.volumes.count, "volumes of one tenant; 0 = no bound")
	fs.Func("max-volume-bytes", "size of one tenant's volumes together; 0 = no bound (default 64g)", func(s string) (err error) {
		f.volumes.bytes, err = config.ParseSize(s)
		return err
	})
	fs.IntVar(&f.warm, "warm", f.warm, "boxes kept warm for requests with lifecycle.reuse, of all tenants together; 0 = none")
	fs.StringVar(&f.templates, "templates", "", "file of boxes that are prepared once and copied: see docs/templates.md")
	fs.IntVar(&f.rules.Starts, "starts", f.rules.Starts, "boxes being made at once; one tenant's are all but one of these")
	fs.IntVar(&f.rules.Line, "line", f.rules.Line, "requests of one tenant that may wait for a box")
	fs.Func("resolver", "a DNS server for names that boxes may reach, instead of this host's; may be repeated", addResolver(&f.resolvers))
	fs.StringVar(&f.logFormat, "log", "text", "text or json")
	fs.BoolVar(&f.destroy, "destroy-boxes", false, "destroy all boxes at the end, instead of leaving them to the next start")
	fs.BoolVar(&f.openMetrics, "open-metrics", false, "serve /metrics without a key")
	if err := parseFlags(fs, args, "serve"); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			serveUsage(os.Stdout, fs)
		}
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("cannot use argument %q: serve takes flags only", fs.Arg(0))
	case f.logFormat != "text" && f.logFormat != "json":
		return nil, fmt.Errorf("cannot log as %q: allowed are text and json", f.logFormat)
	case f.maxPaused < 0:
		return nil, fmt.Errorf("cannot use --max-paused %v: less than 0", f.maxPaused)
	case f.ttl <= 0 || f.ttl > f.maxTTL:
		return nil, fmt.Errorf("cannot use --ttl %v: allowed are more than 0 and at most --max-ttl (%v)", f.ttl, f.maxTTL)
	case f.warm < 0 || f.warm > 1000:
		return nil, fmt.Errorf("cannot use --warm %d: allowed are 0 to 1000", f.warm)
	case f.rules.Starts < 1 || f.rules.Line < 1 || f.rules.Share.Boxes < 0 || f.snapshots.count < 0 || f.volumes.count < 0:
		return nil, errors.New("cannot use --starts, --line, --max-boxes, --max-snapshots or --max-volumes: too small")
	}
	for i, m := range f.mounts {
		var err error
		if f.mounts[i], err = absolute(m); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func serveUsage(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprint(w, `usage:
  sunaba serve [flags]        boxes that last, over REST and MCP

The first start prints an API key, once. A key in SUNABA_API_KEY (e2b_ and 40 hexadecimal
digits) is taken instead, at any start: so one that was lost is replaced.
It ends on SIGTERM and Ctrl-C. Boxes live on and are taken up by the next start.

flags:
`)
	fs.VisitAll(func(f *flag.Flag) {
		arg := map[string]string{"listen": "ADDRESS:PORT", "state": "DIR", "host": "NAME", "templates": "FILE", "allow-mount": "DIR", "allow-network": "CIDR", "resolver": "ADDRESS", "log": "FORMAT",
			"ttl": "TIME", "max-ttl": "TIME", "max-paused": "TIME", "max-memory": "SIZE", "max-snapshot": "SIZE", "max-snapshot-bytes": "SIZE", "max-volume-bytes": "SIZE", "open-metrics": "", "destroy-boxes": ""}
		a, ok := arg[f.Name]
		if !ok {
			a = "N"
		}
		help := f.Usage
		if f.DefValue != "" && f.DefValue != "false" && f.Name != "state" {
			help += " (default " + f.DefValue + ")"
		}
		describe(w, "--"+f.Name+" "+a, help)
	})
}

// serveCommand is `sunaba serve`.
func serveCommand(args []string) int {
	f, err := parseServe(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		signal.Ignore(syscall.SIGPIPE)
		ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer cancel()
		err = serve(ctx, f)
	} else {
		err = invalid(err)
	}
	if err == nil {
		return 0
	}
	return failed(&runFlags{cfg: config.Default()}, err)
}

func serve(ctx context.Context, f *serveFlags) error {
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return box.Errorf(box.Unusable, "serve", "cannot listen: %w", err).WithHint("name another address and port with --listen")
	}
	defer listener.Close()
	state, err := stateDir(f.state)
	if err != nil {
		return err
	}
	fault.Watch(state)
	log := newLog(os.Stderr, f.logFormat)
	templates, err := readTemplates(f.templates)
	if err != nil {
		return err
	}
	s, err := newService(ctx, serviceOptions{
		state: state, images: filepath.Join(state, "images"), rules: f.rules, ttl: f.ttl, maxTTL: f.maxTTL, maxPaused: f.maxPaused, mountRoots: f.mounts, bounds: networkBounds{networks: f.networks}, snapshots: f.snapshots, volumes: &f.volumes,
		warm: f.warm, templates: templates, resolvers: f.resolvers, log: log,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := s.Close(); err != nil {
			log.Error("cannot close", "error", err)
		}
	}()
	loopback := isLoopback(listener.Addr())
	if !loopback {
		log.Warn("keys and all that boxes say travel in clear text: put a proxy with TLS before this address", "address", listener.Addr().String())
	}
	h, err := s.handler(f, state, loopback, log)
	if err != nil {
		return err
	}
	if err := s.firstKey(ctx, os.Stdout, listener.Addr(), log); err != nil {
		return err
	}
	srv := server.HTTP(h)
	srv.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(server.Patient(listener)) }()
	log.Info("serving", "address", listener.Addr().String(), "state", state)
	select {
	case err := <-done:
		return box.Errorf(box.Fault, "serve", "cannot serve: %w", err)
	case <-ctx.Done():
	}
	log.Info("ending", "boxes", map[bool]string{true: "are destroyed", false: "live on"}[f.destroy])
	// First the boxes, then the connections: a caller that is cut off would end its
	// program, and here it is the daemon that goes.
	if f.destroy {
		err = s.DestroyAll(context.Background())
	}
	err = errors.Join(err, s.Service.Close())
	sctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if serr := srv.Shutdown(sctx); serr != nil {
		log.Info("cut what was under way", "error", srv.Close())
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return box.Errorf(box.Fault, "serve", "cannot serve: %w", err)
	}
	return err
}

func newLog(w io.Writer, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// firstKey makes sure that somebody has a key: the one that was given, or a new
// one, which is shown this once.
func (s *service) firstKey(ctx context.Context, w io.Writer, addr net.Addr, log *slog.Logger) error {
	admin := box.Key{Tenant: "local", Principal: "admin", Scopes: []box.Scope{box.ScopeAdmin}}
	if given := os.Getenv("SUNABA_API_KEY"); given != "" {
		if err := s.store.AddKey(ctx, given, admin); err != nil {
			return err
		}
		k, err := s.store.FindKey(ctx, given) // another tenant's stays what it is
		if err != nil {
			log.Warn("the key in SUNABA_API_KEY is of no use", "error", err)
			return nil
		}
		log.Info("no key is shown: that in SUNABA_API_KEY is taken", "tenant", k.Tenant, "principal", k.Principal)
		return nil
	}
	n, err := s.store.Keys(ctx)
	if err != nil || n > 0 {
		return err
	}
	key, err := s.store.NewKey(ctx, admin)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "API key, shown this once: %s\n\n  export SUNABA_API_KEY=%s SUNABA_SERVER=http://%s\n  sunaba box create\n", key, key, addr)
	return err
}
