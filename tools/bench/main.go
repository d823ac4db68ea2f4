// The runtime would hold files of the host's control groups open, to follow a
// quota that is the box's and not this process's; the sentry would have them.
//
//go:debug containermaxprocs=0

// Command bench measures this program's tiers beside what else runs untrusted
// commands on this host, and writes the tables of docs/bench.md.
//
// A time alone says little: the same command takes twice as long on the same
// machine ten minutes later. So all peers take turns within one process, each
// once a round, in an order that is drawn anew for every round, and what is
// quoted is the median of the ratios within the rounds. All have the same root
// file system, the base image of our tiers, and our default limits where they
// can have limits. What a peer uses is read from a control group around
// everything that it starts, daemons and containers included.
//
// It needs root. A peer that is not installed, or that does not pass a first
// run, is named in the result with the reason; nothing is left out in silence.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	_ "github.com/sunaba-dev/sunaba/internal/procguard" // before gVisor's packages initialize
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
)

// Names under which this program runs itself.
const (
	roleInit   = "bench-init"
	roleInside = "bench-inside"
)

func main() {
	if code, ok := process.Dispatch(os.Args); ok {
		os.Exit(code)
	}
	gvisor.Dispatch(os.Args)
	var err error
	switch os.Args[0] {
	case roleInit:
		err = initMain(os.Args[1:])
	case roleInside:
		err = inside(os.Args[1:])
	default:
		err = outside(os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	scratch, sunaba, npm, only, out, root string
	rounds, passes, idle, crowd           int
	each                                  time.Duration
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.scratch, "scratch", "/var/tmp/sunaba-bench", "folder for images, bundles and daemons' data, kept for the next run")
	fs.StringVar(&o.sunaba, "sunaba", "bin/sunaba", "the program to measure")
	fs.StringVar(&o.npm, "npm", "", "folder with node_modules/@anthropic-ai/sandbox-runtime (default: npm in the scratch folder)")
	fs.StringVar(&o.only, "only", "", "measure only peers whose name matches this expression")
	fs.StringVar(&o.out, "out", "", "also write the tables to this file")
	fs.StringVar(&o.root, "root", "", "for its own use")
	fs.IntVar(&o.rounds, "rounds", 30, "rounds; 0 for none")
	fs.IntVar(&o.passes, "passes", 3, "passes of the throughput measurement; 0 for none")
	fs.IntVar(&o.idle, "idle", 5, "idle boxes of each peer; 0 for none")
	fs.IntVar(&o.crowd, "crowd", 200, "idle boxes of the daemon's at once; 0 for none, and no forks")
	fs.DurationVar(&o.each, "each", 3*time.Second, "length of a pass for each peer")
	err := fs.Parse(args)
	for _, p := range []*string{&o.scratch, &o.sunaba} {
		if a, aerr := filepath.Abs(*p); aerr == nil {
			*p = a
		}
	}
	if o.npm == "" {
		o.npm = filepath.Join(o.scratch, "npm")
	}
	return o, err
}

// outside prepares what needs the host, and then goes inside.
func outside(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("cannot measure: half of the peers need root")
	}
	if _, err := os.Stat(o.sunaba); err != nil {
		return fmt.Errorf("cannot measure: %w (make build)", err)
	}
	root, err := scratch(o.scratch).prepare(context.Background(), os.Stderr)
	if err != nil {
		return err
	}
	return enclose(append(args, "-root", root, "-scratch", o.scratch, "-sunaba", o.sunaba))
}

// inside measures.
func inside(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	log := os.Stderr
	acct, err := newAccount()
	if err != nil {
		return err
	}
	s := &setup{scratch: scratch(o.scratch), root: o.root, sunaba: o.sunaba, npm: o.npm, live: &live{}, service: &service{}}
	s.docker, s.podman = &docker{s: s.scratch, root: o.root}, &podman{s: s.scratch, root: o.root}
	if err := s.scratch.filter(); err != nil {
		return err
	}
	hugetlb := parkHugetlb()
	var programs [][]string
	for _, w := range general() {
		programs = append(programs, w.argv)
	}
	if err := s.bundles(append(programs, []string{"sleep", "infinity"})); err != nil {
		return err
	}
	s.docker.start(log)
	defer s.docker.stop()
	s.podman.start(log)
	s.live.start(ctx, s.scratch)
	defer func() {
		if err := s.live.stop(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintln(log, "bench:", err)
		}
	}()
	s.service.start(ctx, s.scratch, s.sunaba)
	defer func() {
		if err := s.service.stop(); err != nil {
			fmt.Fprintln(log, "bench:", err)
		}
	}()
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	all := s.peers()
	peers, missing := usable(ctx, s.scratch, all, only, log)
	if hugetlb != nil && missing["crun run"] != "" {
		missing["crun run"] += "; the hugetlb controller could not be moved to version 1: " + hugetlb.Error()
	}
	r := report{rounds: o.rounds, passes: o.passes, each: o.each, idleN: o.idle, loads: []float64{load()}, versions: versions()}
	var body strings.Builder
	r.w = &body
	failed := map[string]string{}
	if o.rounds > 0 {
		res, err := latency(ctx, acct, peers, o.rounds, log)
		if err != nil {
			return err
		}
		r.targets(res)
		for _, w := range workloads() {
			r.latency(peers[w.name], res[w.name])
			for name, n := range res[w.name].failed {
				failed[name] += fmt.Sprintf("Failed %d times with `%s`, which are not in the figures: %s. ", n, w.name, oneLine(res[w.name].reasons[name]))
			}
		}
	}
	if o.passes > 0 {
		rates, err := throughput(ctx, acct, peers, o.passes, o.each, log)
		if err != nil {
			return err
		}
		r.throughput(peers, rates)
	}
	if o.idle > 0 {
		held, err := idle(ctx, acct, s.sleepers(peers[workloads()[0].name]), o.idle, log)
		if err != nil {
			return err
		}
		r.idle(held)
	}
	r.crowd(s.service.crowded(ctx, acct, o.crowd, o.passes, o.each, log))
	r.legend(all, missing, failed)
	r.loads = append(r.loads, load())
	return deliver(r, body.String(), o.out)
}

// deliver writes the result to standard output, and to a file if there is one.
func deliver(r report, body, file string) error {
	var text strings.Builder
	r.w = &text
	r.head()
	text.WriteString(body)
	if _, err := io.WriteString(os.Stdout, text.String()); err != nil {
		return err
	}
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text.String())
	return errors.Join(err, f.Close())
}

// usable runs every peer once with every workload; what fails is missing.
func usable(ctx context.Context, s scratch, all []peer, only *regexp.Regexp, log io.Writer) (map[string][]peer, map[string]string) {
	peers, missing := map[string][]peer{}, map[string]string{}
	for _, p := range all {
		why := p.absent
		if !only.MatchString(p.name) {
			why = "not asked for"
		}
		for _, w := range workloads() {
			if why == "" && p.runs(w) {
				if err := p.check(ctx, s, w); err != nil {
					why = fmt.Sprintf("`%s`: %s", w.name, oneLine(err))
				}
			}
		}
		if why != "" {
			missing[p.name] = why
			fmt.Fprintf(log, "bench: not measured: %s: %s\n", p.name, why)
			continue
		}
		for _, w := range workloads() {
			if p.runs(w) {
				peers[w.name] = append(peers[w.name], p)
			}
		}
	}
	return peers, missing
}

// versions asks the peers.
func versions() []string {
	var all []string
	for _, c := range [][]string{{"bwrap", "--version"}, {"crun", "--version"}, {"runc", "--version"}, {"dockerd", "--version"}, {"podman", "--version"}, {"node", "--version"}} {
		out, err := output(nil, c[0], c[1:]...)
		if err != nil {
			continue // the legend says what is missing
		}
		first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
		if c[0] == "node" {
			first = "node " + first
		}
		all = append(all, strings.ReplaceAll(first, ", build", " build"))
	}
	return all
}
