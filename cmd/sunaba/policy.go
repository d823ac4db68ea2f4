package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// exitDiffers is what `sunaba policy` returns when the answer is no: an
// expectation is not met, a URL is denied, or a change adds reach.
const exitDiffers = 1

// policyCall is one use of `sunaba policy`.
type policyCall struct {
	format, policy, config, method string
	box                            string // explain: a box that lives
	server                         serverFlags
	exitCode                       bool
	args                           []string
}

type policyVerb struct {
	name, args, help string
	flags            func(*flag.FlagSet, *policyCall)
	run              func(*policyCall) (int, error)
	least, most      int // arguments; most -1 for any number
}

func policyVerbs() []policyVerb {
	whose := func(fs *flag.FlagSet, c *policyCall) {
		fs.StringVar(&c.policy, "policy", "", "")
		fs.StringVar(&c.config, "config", "", "")
	}
	return []policyVerb{
		{"check", "FILE...", "read policies and say what is wrong with them, or likely not meant", nil, policyCheck, 1, -1},
		{"diff", "[--exit-code] OLD NEW", "what a change lets a box do that it could not, and what it takes away", func(fs *flag.FlagSet, c *policyCall) {
			fs.BoolVar(&c.exitCode, "exit-code", false, "")
		}, policyDiff, 2, 2},
		{"explain", "[--policy FILE | --config FILE | --box BOX] [--method M] URL", "which rule decides about http://, https:// or tcp://HOST:PORT, and why", func(fs *flag.FlagSet, c *policyCall) {
			whose(fs, c)
			fs.StringVar(&c.method, "method", "GET", "")
			fs.StringVar(&c.box, "box", "", "")
			fs.StringVar(&c.server.url, "server", "", "")
		}, policyExplain, 1, 1},
		{"test", "[--policy FILE | --config FILE] FILE", "hold a policy against a table of lines such as `deny POST https://HOST/PATH`", whose, policyTest, 1, 1},
	}
}

func policyUsage(w io.Writer) {
	fmt.Fprint(w, `usage:
  sunaba policy COMMAND [flags] [ARG...]     what a box may reach (see docs/egress-policy.md)

commands:
`)
	for _, v := range policyVerbs() {
		describe(w, v.name+" "+v.args, v.help)
	}
	fmt.Fprint(w, "\nA file of check and diff is a policy, or a configuration: then it is the policy of its network.\n\nflags:\n")
	describe(w, "--policy FILE", "the policy; without it and --config, policy.yaml in the current folder")
	describe(w, "--config FILE", "the policy of a configuration file: its network.allowlist, policy or rules")
	describe(w, "--box BOX", "the rules that are in force for a box of the daemon")
	describe(w, "--server URL", "the daemon, as for `sunaba box`")
	describe(w, "--method M", "of the request (default GET)")
	describe(w, "--exit-code", "exit with 1 if the change adds reach")
	describe(w, "-o FORMAT", "of the answer: text or json (default text)")
	fmt.Fprint(w, "\nIt exits with 1 if a URL is denied or an expectation is not met, and with 240 if a file cannot be read.\n")
}

// policyCommand is `sunaba policy`. But for explain --box it asks files only: no box,
// no network, no daemon.
func policyCommand(args []string) int {
	if len(args) == 0 {
		policyUsage(os.Stderr)
		return exitUsage
	}
	if slices.Contains([]string{"-h", "--help", "help"}, args[0]) {
		policyUsage(os.Stdout)
		return 0
	}
	all := policyVerbs()
	i := slices.IndexFunc(all, func(v policyVerb) bool { return v.name == args[0] })
	if i < 0 {
		return complain(box.Errorf(box.Invalid, "policy", "cannot do %q with a policy: there is no such command", args[0]).
			WithHint("`sunaba policy -h` lists the commands"))
	}
	c := &policyCall{format: "text"}
	code, err := c.serve(all[i], args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		policyUsage(os.Stdout)
		return 0
	case err != nil && c.format == "json":
		// One document holds all that is wrong with a file.
		e := box.Errorf(asError(invalid(err)).Kind, "policy", "%s", err.Error())
		return complainJSON(e.WithHint("%s", asError(err).Hint))
	case err != nil:
		return complain(invalid(err))
	}
	return code
}

func (c *policyCall) serve(v policyVerb, args []string) (int, error) {
	fs := newFlags("sunaba policy " + v.name)
	fs.StringVar(&c.format, "o", "text", "")
	if v.flags != nil {
		v.flags(fs, c)
	}
	for rest := args; ; {
		if err := parseFlags(fs, rest, "policy"); err != nil {
			c.format = formatOf(args)
			return 0, err
		}
		if rest = fs.Args(); len(rest) == 0 {
			break
		}
		c.args, rest = append(c.args, rest[0]), rest[1:]
	}
	switch n := len(c.args); {
	case c.format != "text" && c.format != "json":
		err := fmt.Errorf("cannot answer as %q: -o takes text or json", c.format)
		c.format = "text"
		return 0, err
	case n < v.least || v.most >= 0 && n > v.most:
		return 0, fmt.Errorf("cannot do this with %d arguments: write `sunaba policy %s %s`", n, v.name, v.args)
	case c.policy != "" && c.config != "", c.box != "" && c.policy+c.config != "":
		return 0, errors.New("cannot use more than one of --policy, --config and --box: give one of them")
	}
	return v.run(c)
}

// show prints the answer: a document, or lines.
func (c *policyCall) show(doc any, lines func()) error {
	if c.format != "json" {
		lines()
		return nil
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the answer: %w", err)
	}
	fmt.Printf("%s\n", b)
	return nil
}

func policyCheck(c *policyCall) (int, error) {
	type checked struct {
		File     string         `json:"file"`
		Digest   string         `json:"digest"`
		Mode     box.NetMode    `json:"mode"`
		Hosts    int            `json:"hosts"`
		Warnings []policyRemark `json:"warnings"`
	}
	var out []checked
	for _, file := range c.args {
		p, err := readAnyPolicy(file)
		if err != nil {
			return 0, err
		}
		mode := box.NetAllowlist
		if p.none != "" {
			mode = box.NetNone
		}
		out = append(out, checked{file, p.Digest(), mode, len(p.Hosts), remarks(p.warnings)})
	}
	return 0, c.show(out, func() {
		for _, o := range out {
			for _, w := range o.Warnings {
				fmt.Printf("%s:%d:%d: %s\n", w.File, w.Line, w.Column, w.Message)
			}
			if o.Mode == box.NetNone {
				fmt.Printf("%s: no network\n", o.File)
				continue
			}
			fmt.Printf("%s: %d entries, digest %s\n", o.File, o.Hosts, o.Digest[:12])
		}
	})
}

type policyRemark struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

func remarks(errs settings.Errors) []policyRemark {
	out := []policyRemark{}
	for _, e := range errs {
		out = append(out, policyRemark{e.File, e.Line, e.Column, e.Err.Message})
	}
	return out
}

func policyDiff(c *policyCall) (int, error) {
	before, err := readAnyPolicy(c.args[0])
	if err != nil {
		return 0, err
	}
	after, err := readAnyPolicy(c.args[1])
	if err != nil {
		return 0, err
	}
	diff := rules.Diff(before.Policy, after.Policy)
	code := 0
	if c.exitCode && slices.ContainsFunc(diff, func(r rules.Reach) bool { return r.Added }) {
		code = exitDiffers
	}
	return code, c.show(append([]rules.Reach{}, diff...), func() {
		for _, r := range diff {
			sign := "-"
			if r.Added {
				sign = "+"
			}
			fmt.Println(sign, r.Text)
		}
		if len(diff) == 0 {
			fmt.Println("the reach is the same")
		}
	})
}

func policyExplain(c *policyCall) (int, error) {
	q, err := rules.ParseQuestion(c.method, c.args[0])
	if err != nil {
		return 0, err
	}
	p, err := c.whose()
	if err != nil {
		return 0, err
	}
	a := p.Explain(q)
	if p.none != "" {
		a.Steps, a.Reason, a.Fix = []string{p.none}, p.none, ""
		if c.config != "" {
			a.Fix = "mode: allowlist, and then an entry that allows it, in network of " + c.config
		}
	}
	code := 0
	if !a.Allow {
		code = exitDiffers
	}
	return code, c.show(a, func() {
		for _, s := range a.Steps {
			fmt.Println("  " + oneLine(s))
		}
		if a.Allow {
			fmt.Printf("allow (%s)\n", a.Rule)
			return
		}
		fmt.Printf("deny (%s)\n", a.Code)
		if a.Fix != "" {
			fmt.Println("what would allow it: " + a.Fix)
		}
	})
}

func policyTest(c *policyCall) (int, error) {
	text, err := readText("table", c.args[0])
	if err != nil {
		return 0, err
	}
	table, err := rules.ParseExpectations(c.args[0], string(text))
	if err != nil {
		return 0, err
	}
	p, err := c.whose()
	if err != nil {
		return 0, err
	}
	type failure struct {
		Line   int          `json:"line"`
		Text   string       `json:"question"`
		Answer rules.Answer `json:"answer"`
	}
	failed := []failure{}
	for _, e := range table {
		if a := p.Explain(e.Question); a.Allow != e.Allow {
			failed = append(failed, failure{e.Line, e.Text, a})
		}
	}
	code := 0
	if len(failed) > 0 {
		code = exitDiffers
	}
	return code, c.show(map[string]any{"expectations": len(table), "failed": failed}, func() {
		for _, f := range failed {
			was := "allowed"
			if !f.Answer.Allow {
				was = "denied"
			}
			fmt.Printf("%s:%d: %s is %s: %s\n", c.args[0], f.Line, oneLine(f.Text), was, oneLine(f.Answer.Reason))
		}
		fmt.Printf("%d expectations, %d not met\n", len(table), len(failed))
	})
}
