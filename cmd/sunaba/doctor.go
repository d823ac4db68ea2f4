package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
)

// diagnosis is what `sunaba doctor -o json` prints; see docs/doctor.md.
type diagnosis struct {
	Usable  bool     `json:"usable"` // at least one tier is
	Version string   `json:"version"`
	Gvisor  string   `json:"gvisor"`
	Go      string   `json:"go"`
	OS      string   `json:"os"` // and architecture, as in linux/amd64
	Kernel  string   `json:"kernel"`
	Cgroups string   `json:"control_groups"` // v1, v2, hybrid, none
	User    string   `json:"user"`           // root, ordinary
	UID     int      `json:"uid"`
	State   string   `json:"state_folder"`
	Tiers   []health `json:"tiers"`

	Network networkHealth `json:"network"` // of boxes that ask for one
}

// health is one tier's part.
type health struct {
	Tier    box.TierName `json:"tier"`
	InBuild bool         `json:"in_build"`
	Usable  bool         `json:"usable"`
	Weak    []string     `json:"weak"`
	Missing []string     `json:"missing"`
	Steps   []box.Step   `json:"steps"`
}

// doctorCommand is `sunaba doctor`. It returns 0 if a box can be made here.
func doctorCommand(args []string) int {
	fs := flag.NewFlagSet("sunaba doctor", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	state := fs.String("state", "", "")
	format := fs.String("o", "text", "")
	err := fs.Parse(args)
	switch {
	case err == flag.ErrHelp:
		fmt.Print("usage:\n  sunaba doctor [flags]\n\nTries every step of a box on this host, and says what works, what is weak or missing, and what to do.\n\nflags:\n")
		describe(os.Stdout, "-o FORMAT", "of the answer: text or json (default text)")
		describe(os.Stdout, "--state FOLDER", "for images and running boxes (default "+stateHelp+")")
		return 0
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("cannot examine %q: doctor takes no arguments", fs.Arg(0))
	case err == nil && *format != "text" && *format != "json":
		err = fmt.Errorf("cannot answer as %q: -o takes text or json", *format)
	}
	if err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
			err = fmt.Errorf("cannot use flag %s: doctor takes --state DIR and -o text or json", dashed(name))
		}
		say(err.Error())
		return exitUsage
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	d := diagnose(ctx, *state)
	if *format == "json" {
		b, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			say("cannot encode the diagnosis: " + err.Error())
			return exitFault
		}
		fmt.Println(string(b))
	} else {
		d.print(os.Stdout)
	}
	if !d.Usable {
		return exitUnusable
	}
	return 0
}

func diagnose(ctx context.Context, flag string) diagnosis {
	d := diagnosis{
		Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel(),
		Cgroups: "none", User: "ordinary", UID: os.Getuid(),
	}
	d.Version, d.Gvisor = versions()
	if host.IsRoot() {
		d.User = "root"
	}
	if m, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup); err == nil {
		d.Cgroups = m.Mode()
	}
	var built []*deferred
	var err error
	if d.State, err = stateDir(flag); err == nil {
		built = tiers(&common{state: d.State, debug: os.Getenv("SUNABA_DEBUG")})
	}
	for _, name := range box.TierNames() {
		i := slices.IndexFunc(built, func(t *deferred) bool { return t.name == name })
		switch {
		case name == box.TierAuto:
		case i >= 0:
			d.add(name, built[i].Probe(ctx))
		case err != nil && name == box.TierGvisor:
			d.add(name, gvisor.ProbeWithout(ctx, err))
		case err != nil && name == box.TierProcess:
			d.add(name, process.ProbeWithout(ctx, err))
		default:
			d.Tiers = append(d.Tiers, health{Tier: name, Weak: []string{}, Missing: []string{}, Steps: []box.Step{}})
		}
	}
	d.Network = diagnoseNetwork(ctx)
	return d
}

func (d *diagnosis) add(name box.TierName, c box.Caps) {
	d.Usable = d.Usable || c.Usable
	d.Tiers = append(d.Tiers, health{Tier: name, InBuild: true, Usable: c.Usable, Weak: c.Weak, Missing: c.Missing, Steps: c.Steps})
}

// kernel is what uname(2) calls the running one.
func kernel() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return "unknown"
	}
	var b []byte
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return "Linux " + string(b)
}

// print shows the diagnosis to a person. Names of folders and words of the
// kernel are cleaned: they may hold anything.
func (d *diagnosis) print(w io.Writer) {
	line := func(s string) {
		fmt.Fprintln(w, strings.ReplaceAll(stream.Clean([]byte(s)), "\n", " "))
	}
	line(fmt.Sprintf("sunaba %s, gvisor %s, %s, %s", d.Version, d.Gvisor, d.Go, d.OS))
	line(fmt.Sprintf("%s, control groups %s, %s (uid %d), state in %s", d.Kernel, d.Cgroups, d.User, d.UID, d.State))
	var absent []string
	for _, t := range d.Tiers {
		if !t.InBuild {
			absent = append(absent, string(t.Tier))
			continue
		}
		line("")
		printSteps(line, t.Steps)
		line("")
		verdict := "usable"
		if !t.Usable {
			verdict = "not usable here"
		}
		line(fmt.Sprintf("%s: %s", t.Tier, verdict))
		for _, m := range t.Missing {
			line("  missing: " + m)
		}
		for _, m := range t.Weak {
			line("  weak: " + m)
		}
	}
	line("")
	printSteps(line, d.Network.Steps)
	line("")
	verdict := "usable"
	if !d.Network.Usable {
		verdict = "not usable here; boxes without one do not need it"
	}
	line("network mode allowlist: " + verdict)
	line("")
	line("not in this build: " + strings.Join(absent, ", "))
}

func printSteps(line func(string), steps []box.Step) {
	width := 0
	for _, s := range steps {
		width = max(width, len(s.Name))
	}
	for _, s := range steps {
		line(fmt.Sprintf("  %-*s  %-7s  %s", width, s.Name, s.State, s.Detail))
		if s.Advice != "" {
			line(fmt.Sprintf("  %-*s  %-7s  -> %s", width, "", "", s.Advice))
		}
	}
}
