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
	"slices"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
)

// boxVerb is one command below `sunaba box`.
type boxVerb struct {
	name, args, help string
	run              func(context.Context, *boxCall) (int, error)
	flags            func(*flag.FlagSet, *boxCall)
	program          bool // what follows the box's name is a program and its arguments
	least, most      int  // arguments; most -1 = any number
}

func boxVerbs() []boxVerb {
	return []boxVerb{
		{name: "create", args: "[flags]", help: "make a box, and print its name; takes the flags of `sunaba run` for limits and files", run: boxCreate, flags: createFlags},
		{name: "ls", args: "[-a]", help: "list boxes; -a also those that are no more", run: boxList, flags: listFlags},
		{name: "inspect", args: "BOX", help: "tell all that is known of a box", run: boxInspect, least: 1, most: 1},
		{name: "exec", args: "[flags] BOX CMD [ARG...]", help: "run a program in a box", run: boxExec, flags: execFlags, program: true, least: 2, most: -1},
		{name: "shell", args: "[-u USER] BOX", help: "open a shell in a box", run: boxShell, flags: shellFlags, least: 1, most: 1},
		{name: "cp", args: "[-r] FROM TO", help: "copy a file, or with -r a folder; one of the two is BOX:PATH, and - is standard input or output", run: boxCopy, flags: copyFlags, least: 2, most: 2},
		{name: "ps", args: "BOX", help: "list the programs of a box", run: boxProcesses, least: 1, most: 1},
		{name: "logs", args: "[-f] BOX PID", help: "show what a program has written last; -f goes on", run: boxLogs, flags: logsFlags, least: 2, most: 2},
		{name: "kill", args: "[-s SIGNAL] BOX PID", help: "send a signal (default TERM)", run: boxKill, flags: killFlags, least: 2, most: 2},
		{name: "prolong", args: "BOX TIME", help: "let a box live at least so long from now on", run: boxProlong, least: 2, most: 2},
		{name: "pause", args: "BOX", help: "make a box stand still until its next use", run: boxPause, least: 1, most: 1},
		{name: "resume", args: "BOX", help: "let a paused box go on", run: boxResume, least: 1, most: 1},
		{name: "network", args: "[--also HOST:PORT]... [--allow HOST:PORT]... [--network-policy FILE] [--allow-nothing] BOX", help: "tell what a box may reach, and what it was denied; --also adds to the list that it may reach, the others put rules in force in place of its own", run: boxNetwork, flags: networkFlags, least: 1, most: 1},
		{name: "snapshot", args: "[--name NAME] [--memory] BOX", help: "keep a copy of a box, and print its id; see `sunaba snapshot`", run: boxSnapshot, flags: snapshotFlags, least: 1, most: 1},
		{name: "fork", args: "[-n N] [--ttl TIME] BOX", help: "make copies of a box that go on from where it is, and print their names", run: boxFork, flags: forkFlags, least: 1, most: 1},
		{name: "rm", args: "BOX...", help: "destroy boxes", run: boxRemove, least: 1, most: -1},
	}
}

func boxUsage(w io.Writer) {
	fmt.Fprint(w, `usage:
  sunaba box COMMAND [flags] [ARG...]     boxes that last, of a daemon (`+"`sunaba serve`"+`)

commands:
`)
	for _, v := range boxVerbs() {
		describe(w, strings.TrimSpace(v.name+" "+v.args), v.help)
	}
	fmt.Fprint(w, "\nflags of all of them:\n")
	describe(w, "--server URL", "the daemon (default SUNABA_SERVER, or http://"+defaultListen+"); its key comes from SUNABA_API_KEY, or the file sunaba/key below your configuration folder")
	describe(w, "-o FORMAT", "of the answer: text or json (default text)")
	fmt.Fprint(w, "\nflags of exec:\n")
	describe(w, "-e NAME=VALUE", "environment; may be repeated")
	describe(w, "-w FOLDER", "where the program starts (default the box's working folder)")
	describe(w, "-u USER", "who it is in the box: user or root")
	describe(w, "-t", "give it a terminal")
	describe(w, "--timeout TIME", "end it after so long (default 0: none)")
	describe(w, "--detach", "print its number and leave it to itself; see logs, ps and kill")
	fmt.Fprint(w, "\nflags of network:\n")
	describe(w, "--allow HOST:PORT", "what the box may reach from now on; may be repeated; without a port it is 443")
	describe(w, "--also HOST:PORT", "what the box may reach from now on beside what it may already; may be repeated")
	describe(w, "--network-policy FILE", "the same, as a policy file says it")
	describe(w, "--allow-nothing", "it may reach nothing from now on")
	fmt.Fprint(w, "\nflags of snapshot and fork:\n")
	describe(w, "--name NAME", "name of the snapshot: of a to z, 0 to 9, dot, underscore and hyphen, the first a letter or digit")
	describe(w, "--memory", "keep what runs in the box, too, so that a box made from it goes on")
	describe(w, "-n N", "copies to make (default 1)")
	fmt.Fprint(w, "\nflags of create:\n")
	describe(w, "--ttl TIME", "destroy the box after so long (default the daemon's)")
	describe(w, "--unused TIME", "destroy it when it was not used for so long (default never)")
	describe(w, "--on-unused DO", "destroy (default), or pause until it is used again")
	describe(w, "--template NAME", "make it as a template of the daemon's says; then without flags for limits and files")
	describe(w, "--snapshot NAME", "make it from a snapshot, by its name or id; then without flags for limits and files")
	describe(w, "--strict", "refuse a box of which the host cannot enforce everything")
	describe(w, "--meta NAME=VALUE", "a note of your own; may be repeated")
	describe(w, "--key TEXT", "the same key again answers with the same box")
}

// boxCall is one such command with its arguments.
type boxCall struct {
	noun   string
	server serverFlags
	format string
	args   []string

	c *client.Client

	sandbox sandboxFlags // create
	ttl     string
	unused  string
	onIdle  string
	strict  bool
	key     string
	pairs   []string // metadata, environment
	all     bool     // ls
	exec    execCall
	recurse bool   // cp
	follow  bool   // logs
	signal  string // kill
	newKey  box.Key
	snap    snapshotCall
	network networkCall
	size    string // volume create
	// template is that of box create.
	template string
}

// serverFlags say which daemon.
type serverFlags struct{ url string }

// client returns a client of the daemon.
func (s serverFlags) client() (*client.Client, error) {
	url := s.url
	if url == "" {
		url = os.Getenv("SUNABA_SERVER")
	}
	if url == "" {
		url = "http://" + defaultListen
	}
	key := os.Getenv("SUNABA_API_KEY")
	if key == "" {
		var err error
		if key, err = keyFile(); err != nil {
			return nil, err
		}
	}
	return client.New(url, key)
}

// keyFile reads the key from the caller's configuration folder; it may be absent.
func keyFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", nil
	}
	name := filepath.Join(dir, "sunaba", "key")
	f, err := os.Open(name)
	if err != nil {
		return "", nil
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Mode()&0o077 != 0 {
		return "", box.Errorf(box.Denied, "read key", "cannot use %s: others may read it (mode %o)", name, st.Mode().Perm()).
			WithHint("chmod 600 %s", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", box.Errorf(box.Invalid, "read key", "cannot read %s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// boxCommand is `sunaba box`.
func boxCommand(args []string) int { return nounCommand("box", boxVerbs(), boxUsage, args) }

// nounCommand is what can be done with a thing of a daemon's.
func nounCommand(noun string, all []boxVerb, usage func(io.Writer), args []string) int {
	if len(args) == 0 {
		usage(os.Stderr)
		return exitUsage
	}
	if slices.Contains([]string{"-h", "--help", "help"}, args[0]) {
		usage(os.Stdout)
		return 0
	}
	i := slices.IndexFunc(all, func(v boxVerb) bool { return v.name == args[0] || v.name == otherName(args[0]) })
	if i < 0 {
		return complain(box.Errorf(box.Invalid, "box", "cannot do %q with a %s: there is no such command", args[0], noun).
			WithHint("`sunaba %s -h` lists the commands", noun))
	}
	b := &boxCall{noun: noun, format: "text"}
	code, err := b.serve(all[i], args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(os.Stdout)
		return 0
	case err != nil && b.format == "json":
		return complainJSON(err)
	case err != nil:
		return complain(err)
	}
	return code
}

// otherName is what else a command is called: volumes are listed and deleted, and
// whoever says ls and rm, as of boxes, is understood, too.
func otherName(name string) string {
	pairs := map[string]string{"ls": "list", "list": "ls", "rm": "delete", "delete": "rm"}
	return pairs[name]
}

func (b *boxCall) serve(v boxVerb, args []string) (int, error) {
	fs := newFlags("sunaba " + b.noun + " " + v.name)
	fs.StringVar(&b.server.url, "server", "", "")
	fs.StringVar(&b.format, "o", "text", "")
	if v.flags != nil {
		v.flags(fs, b)
	}
	// Flags may stand before and behind a box's name, but a program's own are its.
	for rest := args; ; {
		if err := parseFlags(fs, rest, b.noun); err != nil {
			b.format = formatOf(args)
			return 0, invalid(err)
		}
		ended := len(rest) > fs.NArg() && rest[len(rest)-fs.NArg()-1] == "--"
		rest = fs.Args()
		if len(rest) == 0 || ended || v.program && len(b.args) == 1 {
			b.args = append(b.args, rest...)
			break
		}
		b.args, rest = append(b.args, rest[0]), rest[1:]
	}
	switch n := len(b.args); {
	case b.format != "text" && b.format != "json":
		err := box.Errorf(box.Invalid, "box", "cannot answer as %q: -o takes text or json", b.format)
		b.format = "text"
		return 0, err
	case n < v.least || v.most >= 0 && n > v.most:
		return 0, box.Errorf(box.Invalid, "box "+v.name, "cannot do this with %d arguments: write `sunaba %s %s %s`", n, b.noun, v.name, v.args)
	}
	var err error
	if b.c, err = b.server.client(); err != nil {
		return 0, err
	}
	signal.Ignore(syscall.SIGPIPE)
	signals := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	ctx, cancel := signal.NotifyContext(context.Background(), signals...)
	defer cancel()
	context.AfterFunc(ctx, cancel) // a second signal ends this process at once
	code, err := v.run(ctx, b)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitCanceled, nil
	}
	return code, err
}

// id reads a box's name.
func (b *boxCall) id(i int) (box.ID, error) {
	if id := box.ID(b.args[i]); id.Valid() {
		return id, nil
	}
	return "", box.Errorf(box.Invalid, "box", "cannot find box %q: that is no box's name", b.args[i]).WithHint("`sunaba box ls` lists them")
}

// guest opens the box that the first argument names.
func (b *boxCall) guest(ctx context.Context) (box.ID, *client.Guest, error) {
	id, err := b.id(0)
	if err != nil {
		return "", nil, err
	}
	g, err := b.c.Guest(ctx, box.Caller{}, id, box.ScopeExec)
	if err != nil {
		return "", nil, err
	}
	return id, g.(*client.Guest), nil
}

// complain says what went wrong, and returns the exit code that says of what
// kind it was.
func complain(err error) int {
	say(err.Error())
	e := asError(err)
	if e.Hint != "" {
		say("hint: " + e.Hint)
	}
	return exitCode(&box.Report{Error: &box.ErrorJSON{Kind: e.Kind}})
}

// complainJSON does so as a document.
func complainJSON(err error) int {
	e := asError(err)
	out := struct {
		Error box.ErrorJSON `json:"error"`
	}{box.ErrorJSON{Kind: e.Kind, Message: e.Message, Hint: e.Hint}}
	_ = (&boxCall{format: "json"}).show(out, nil) // who cannot read it gets the code
	return exitCode(&box.Report{Error: &out.Error})
}

func asError(err error) *box.Error {
	var e *box.Error
	if errors.As(err, &e) {
		return e
	}
	return box.Errorf(box.Fault, "", "%w", err)
}

func newFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// parseFlags parses, and says what is wrong in this program's words.
func parseFlags(fs *flag.FlagSet, args []string, command string) error {
	err := fs.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	err = flagError(fs, err)
	if e, ok := errors.AsType[*box.Error](err); ok {
		hint := strings.ReplaceAll(e.Hint, "sunaba run -h", "sunaba "+command+" -h")
		if command != "box" {
			hint, _, _ = strings.Cut(hint, "; ") // there is no program
		}
		return e.WithHint("%s", hint)
	}
	return err
}
