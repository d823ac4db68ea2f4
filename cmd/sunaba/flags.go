package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/config"
)

// runFlags is what `sunaba run` was asked for.
type runFlags struct {
	cfg config.Config

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

	args    []string
	command bool // args came after "--"
}

// setting is one flag that stands for a configuration key. It is applied after
// the configuration file, whichever came first on the line.
type setting struct{ key, value string }

// parseRun reads the command line. An error is for the person, complete.
func parseRun(args []string, stderr io.Writer) (*runFlags, error) {
	f := &runFlags{format: "text"}
	var file string
	var settings []setting
	fs := flag.NewFlagSet("sunaba run", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&file, "config", "", "configuration `file`; flags win over it")
	fs.Func("e", "run this `code`; needs --lang", func(v string) error { f.code, f.hasCode = v, true; return nil })
	fs.StringVar(&f.lang, "lang", "", "`language` of the code: python, javascript, bash; by default from extension or first line")
	fs.StringVar(&f.input, "input", "", "`file` that appears as input.json in the working folder")
	fs.Func("copy", "`FILE[:NAME]` to copy into the working folder; may be repeated", func(v string) error { f.copies = append(f.copies, v); return nil })
	fs.StringVar(&f.out, "out", "", "`folder` that gets what the program leaves in its working folder")
	fs.StringVar(&f.format, "o", "text", "`format` of the answer: text or json")
	fs.BoolVar(&f.tty, "t", false, "interactive: give the program a terminal")
	fs.BoolVar(&f.tty, "tty", false, "same as -t")
	fs.StringVar(&f.state, "state", "", "`folder` for images and running boxes")
	fs.StringVar(&f.tier, "tier", "", "how the walls are built; weaker than --trust permits is refused")
	fs.BoolVar(&f.allowWeaker, "allow-weaker-tier", false, "let --tier go below what --trust asks for")
	fs.BoolVar(&f.strict, "strict", false, "refuse to run if this host cannot enforce everything")
	for _, k := range config.Keys() {
		if k.Flag == "" || k.Flag == "tier" || k.Flag == "mount" {
			continue
		}
		help := fmt.Sprintf("`%s`: %s (default %s)", k.Type, k.Help, orNone(k.Default))
		name := k.Name
		fs.Func(k.Flag, help, func(v string) error { settings = append(settings, setting{name, v}); return nil })
	}
	fs.Func("mount", "`SRC:DST[:rw]`: host folder or file, read-only unless :rw; may be repeated", func(v string) error {
		s, err := mountSetting(v)
		settings = append(settings, s)
		return err
	})
	if err := fs.Parse(args); err != nil {
		if err == flag.ErrHelp {
			runUsage(fs, os.Stdout)
		}
		return nil, err
	}
	f.args = fs.Args()
	if n := len(args) - len(f.args); n > 0 && args[n-1] == "--" {
		f.command = true
	}
	if f.format != "text" && f.format != "json" {
		return nil, fmt.Errorf("cannot answer as %q: -o takes text or json", f.format)
	}
	return f, f.configure(file, settings)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// configure loads the file and then applies the flags.
func (f *runFlags) configure(file string, settings []setting) error {
	f.cfg = config.Default()
	if file != "" {
		in, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("cannot open configuration: %w", err)
		}
		defer in.Close()
		if f.cfg, err = config.Load(file, in); err != nil {
			return err
		}
	}
	for _, s := range settings {
		if err := f.cfg.Set(s.key, s.value); err != nil {
			return err
		}
	}
	if f.tier != "" {
		probe := f.cfg // only to check the name with the same words as in a file
		if err := probe.Set("runtime", f.tier); err != nil {
			return err
		}
	}
	return nil
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
	return setting{key, src + ":" + parts[1]}, nil
}

func runUsage(fs *flag.FlagSet, w io.Writer) {
	fmt.Fprint(w, `usage:
  sunaba run [flags] FILE [ARG...]
  sunaba run [flags] -e CODE --lang LANGUAGE [ARG...]
  sunaba run [flags] - --lang LANGUAGE
  sunaba run [flags] -- CMD [ARG...]

flags:
`)
	fs.SetOutput(w)
	fs.PrintDefaults()
}
