package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/engine"
)

// runFlags is what `sunaba run` was asked for.
type runFlags struct {
	cfg config.Config
	net *rules.Policy // of mode allowlist

	code        string // -e
	hasCode     bool
	lang        string
	input       string
	copies      []string
	out         string
	format      string // text or json
	tty         bool
	state       string
	tier        string
	allowWeaker bool
	strict      bool
	daemon      bool
	resolvers   []netip.AddrPort // instead of the host's

	args    []string
	command bool // args came after "--"

	// asked is whether somebody has chosen a time or an output limit. A person
	// at a terminal ends a session; only a limit that was asked for does it for
	// them.
	asked struct{ time, output bool }

	// How live output ended.
	unread  error // why it could not be written
	midLine bool  // standard error is in the middle of a line
}

// setting is one flag that stands for a configuration key. It is applied after
// the configuration file, whichever came first on the line.
type setting struct{ flag, key, value string }

// option is one flag that stands for no configuration key.
type option struct {
	names []string // the long one last
	arg   string   // what its value is; empty for a switch
	help  string
	set   func(string) error
}

func (f *runFlags) options(file *string, settings *[]setting) []option {
	text := func(p *string) func(string) error {
		return func(v string) error {
			if v == "" {
				return errors.New("its value is empty")
			}
			*p = v
			return nil
		}
	}
	on := func(p *bool) func(string) error {
		return func(v string) error {
			b, err := strconv.ParseBool(v)
			if err != nil {
				return fmt.Errorf("%q is not true or false", v)
			}
			*p = b
			return nil
		}
	}
	return []option{
		{[]string{"e"}, "CODE", "run this code; needs --lang", func(v string) error { f.code, f.hasCode = v, true; return nil }},
		{[]string{"lang"}, "LANGUAGE", engine.LanguageNames() + "; by default from extension or first line", text(&f.lang)},
		{[]string{"input"}, "FILE", "appears as input.json in the working folder", text(&f.input)},
		{[]string{"copy"}, "FILE[:NAME]", "copy into the working folder; may be repeated", func(v string) error { f.copies = append(f.copies, v); return nil }},
		{[]string{"mount"}, "SRC:DST[:rw]", "host folder or file, read-only unless :rw; may be repeated", func(v string) error {
			s, err := mountSetting(v)
			*settings = append(*settings, s)
			return err
		}},
		{[]string{"out"}, "FOLDER", "gets what the program leaves in its working folder", text(&f.out)},
		{[]string{"o"}, "FORMAT", "of the answer: text or json (default text)", text(&f.format)},
		{[]string{"t", "tty"}, "", "interactive: give the program a terminal", on(&f.tty)},
		{[]string{"config"}, "FILE", "configuration; flags win over it", text(file)},
		{[]string{"tier"}, "TIER", "how the walls are built; weaker than --trust permits is refused", text(&f.tier)},
		{[]string{"allow-weaker-tier"}, "", "let --tier go below what --trust asks for", on(&f.allowWeaker)},
		{[]string{"strict"}, "", "refuse to run if this host cannot enforce everything", on(&f.strict)},
		{[]string{"daemon"}, "", "let the daemon run it (SUNABA_SERVER, SUNABA_API_KEY)", on(&f.daemon)},
		{[]string{"resolver"}, "ADDRESS", "a DNS server for names that the box may reach, instead of this host's; may be repeated", addResolver(&f.resolvers)},
		{[]string{"state"}, "FOLDER", "for images and running boxes (default " + stateHelp + ")", text(&f.state)},
	}
}

// keyFlags are the configuration keys that a flag of their own stands for.
func keyFlags() []config.Key {
	return slices.DeleteFunc(config.Keys(), func(k config.Key) bool {
		return k.Flag == "" || k.Flag == "tier" || k.Flag == "mount"
	})
}

// parseRun reads the command line. With flag.ErrHelp the help was printed. The
// flags are never nil; after another error they say at least how to answer.
func parseRun(args []string) (*runFlags, error) {
	f := &runFlags{format: "text", cfg: config.Default()}
	var file string
	var settings []setting
	fs := flag.NewFlagSet("sunaba run", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	define := func(name string, isSwitch bool, set func(string) error) {
		if isSwitch {
			fs.BoolFunc(name, "", set)
		} else {
			fs.Func(name, "", set)
		}
	}
	for _, o := range f.options(&file, &settings) {
		for _, name := range o.names {
			define(name, o.arg == "", o.set)
		}
	}
	for _, k := range keyFlags() {
		define(k.Flag, k.Default == "false", func(v string) error {
			settings = append(settings, setting{k.Flag, k.Name, v})
			return nil
		})
	}
	if err := fs.Parse(args); err != nil {
		if err == flag.ErrHelp {
			runUsage(os.Stdout)
			return f, err
		}
		f.format = formatOf(args)
		return f, flagError(fs, err)
	}
	f.args = fs.Args()
	if n := len(args) - len(f.args); n > 0 && args[n-1] == "--" {
		f.command = true
	}
	if f.format != "text" && f.format != "json" {
		err := fmt.Errorf("cannot answer as %q: -o takes text or json", f.format)
		f.format = "text"
		return f, err
	}
	return f, f.configure(file, settings)
}

// flagError says what package flag means, in this program's words.
func flagError(fs *flag.FlagSet, err error) error {
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		var known []string
		fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
		e := box.Errorf(box.Invalid, "run", "cannot use flag %s: there is none of that name", dashed(name))
		if near := calledElsewhere(name, known); near != "" {
			return e.WithHint("it is %s here", dashed(near))
		}
		if near := config.Nearest(name, known); near != "" && len(name) > 1 {
			return e.WithHint("did you mean %s?", dashed(near))
		}
		return e.WithHint("`sunaba run -h` lists the flags; those for the program come after its name")
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: -"); ok {
		return fmt.Errorf("cannot use flag %s: its value is missing", dashed(name))
	}
	for _, before := range []string{" for flag -", " for -"} {
		if _, rest, ok := strings.Cut(err.Error(), before); ok {
			name, why, _ := strings.Cut(rest, ": ")
			if why == "parse error" { // package flag's, of an integer
				why = "it is no whole number"
			}
			return fmt.Errorf("cannot use %s: %s", dashed(name), why)
		}
	}
	return fmt.Errorf("cannot read the command line: %w", err)
}

// calledElsewhere returns the flag, of those that are known, which is what container
// engines and other sandboxes call by name; empty if there is none.
func calledElsewhere(name string, known []string) string {
	here := ""
	switch strings.TrimLeft(name, "-") {
	case "v", "volumes", "bind", "ro-bind":
		here = "mount"
	case "net":
		here = "network"
	case "m", "mem":
		here = "memory"
	case "w", "workdir":
		here = "writable-dir"
	case "dns":
		here = "resolver"
	case "i", "it", "interactive":
		here = "t"
	case "pids-limit":
		here = "max-processes"
	case "allow-net", "allow-host", "allow-domain", "allowed-domain", "allowed-domains", "allow-out":
		here = "allow"
	}
	if slices.Contains(known, here) {
		return here
	}
	return ""
}

// dashed writes a flag as the help does.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + strings.TrimLeft(name, "-")
}

// configure loads the file and then applies the flags.
func (f *runFlags) configure(file string, settings []setting) error {
	if file != "" {
		cfg, err := loadConfig(file)
		if err != nil {
			return err
		}
		f.cfg = cfg
		f.asked.time, f.asked.output = true, true
	}
	reach, mode := "", false
	for _, s := range settings {
		switch s.flag {
		case "allow", "network-policy":
			reach = s.flag
		case "network":
			mode = true
		}
		if err := f.cfg.Set(s.key, s.value); err != nil {
			return flagValue(s.flag, err)
		}
		f.asked.time = f.asked.time || s.flag == "timeout"
		f.asked.output = f.asked.output || s.flag == "max-output"
	}
	switch {
	case reach == "" || f.cfg.Net.Mode != box.NetNone:
	case mode:
		return box.Errorf(box.Invalid, "run", "cannot use --%s beside --network none: it would have no effect", reach)
	default: // who says what may be reached need not say that there is a network
		f.cfg.Net.Mode = box.NetAllowlist
	}
	if file != "" {
		if err := checkConfigFile(file, writable(f.cfg, f.folders()...)); err != nil {
			return err
		}
	}
	if err := f.network(); err != nil {
		return err
	}
	if f.tier != "" {
		probe := f.cfg // only to check the name with the same words as in a file
		if err := probe.Set("runtime", f.tier); err != nil {
			return flagValue("tier", err)
		}
	}
	return nil
}

// network reads the policy of mode allowlist.
func (f *runFlags) network() error {
	if err := f.cfg.CheckNetwork(); err != nil {
		return err
	}
	if f.cfg.Net.Mode == box.NetNone { // a file may have a list that --network none puts out of use
		if len(f.resolvers) > 0 {
			return box.Errorf(box.Invalid, "run", "cannot use --resolver without a network: it would have no effect").
				WithHint("--allow HOST:PORT gives it one")
		}
		return nil
	}
	var err error
	f.net, err = networkPolicy(f.cfg, f.folders()...)
	return err
}

// folders is where files of the box come to lie beside its mounts.
func (f *runFlags) folders() []string {
	if f.out == "" {
		return nil
	}
	return []string{f.out}
}

// flagValue names the flag beside the key that it stands for.
func flagValue(flag string, err error) error {
	var be *box.Error
	if !errors.As(err, &be) {
		return err
	}
	e := *be
	e.Message = fmt.Sprintf("cannot use --%s: %s", flag, be.Message)
	return &e
}

func loadConfig(file string) (config.Config, error) {
	in, err := os.Open(file)
	if err != nil {
		return config.Config{}, fmt.Errorf("cannot open configuration: %w", err)
	}
	defer in.Close()
	if st, err := in.Stat(); err == nil && st.IsDir() {
		return config.Config{}, fmt.Errorf("cannot load configuration: %s is a folder", file)
	}
	cfg, err := config.Load(file, in)
	return placed(cfg, file), err
}

// placed is a configuration whose policy file is found from the folder of its own.
func placed(cfg config.Config, file string) config.Config {
	if cfg.PolicyFile != "" && !filepath.IsAbs(cfg.PolicyFile) {
		cfg.PolicyFile = filepath.Join(filepath.Dir(file), cfg.PolicyFile)
	}
	return cfg
}

// mountSetting turns SRC:DST[:rw|:ro] into a configuration key and value. A
// relative source is relative to the caller's folder.
func mountSetting(v string) (setting, error) {
	parts := strings.Split(v, ":")
	key := "filesystem.read_only_mounts"
	if n := len(parts); n == 3 {
		switch parts[2] {
		case "rw":
			key = "filesystem.read_write_mounts"
		case "ro":
		default:
			return setting{}, fmt.Errorf("cannot mount %q: %q is not ro or rw", v, parts[2])
		}
		parts = parts[:2]
	}
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return setting{}, fmt.Errorf("cannot mount %q: give SRC:DST or SRC:DST:rw", v)
	}
	src, err := absolute(parts[0])
	if err != nil {
		return setting{}, err
	}
	return setting{"mount", key, src + ":" + parts[1]}, nil
}
