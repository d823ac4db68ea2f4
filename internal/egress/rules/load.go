package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

const opLoad = "load policy"

// Load reads a policy file; name is for messages. The error is a
// [settings.Errors] with everything that is wrong in the file, each with its
// place and, where one is known, the fix. box.KindOf tells what is planned and
// not in this build (Unsupported) from what makes no sense (Invalid).
func Load(name string, text []byte) (*Policy, error) {
	p, _, err := load(name, text)
	return p, err
}

// Lint reads a policy file like [Load] and returns what it allows and likely
// should not. There are no warnings beside an error.
func Lint(name string, text []byte) (warnings settings.Errors, err error) {
	_, warnings, err = load(name, text)
	return warnings, err
}

func load(name string, text []byte) (*Policy, settings.Errors, error) {
	r := &settings.Reader{File: name, Op: opLoad}
	root := r.Document(text)
	var p *Policy
	var warnings settings.Errors
	switch {
	case len(r.Errs) > 0:
	case root == nil || settings.IsNull(root):
		r.Failf(settings.Place{Line: 1, Column: 1}, "", "cannot use an empty policy; to allow nothing, write `version: 1`")
	default:
		p, warnings = LoadNode(r, root)
	}
	if err := r.Err(); err != nil {
		return nil, nil, err
	}
	return p, warnings, nil
}

// LoadNode reads a policy that is a part of a file that r reads. What is wrong
// is noted in r, and the Policy is nil then; warnings are as for [Lint].
func LoadNode(r *settings.Reader, root *yaml.Node) (p *Policy, warnings settings.Errors) {
	l := &loader{
		Reader: r,
		p:      &Policy{Version: Version, Limits: DefaultLimits(), DNS: defaultDNS(), Hosts: []Host{}},
		places: map[spot]settings.Place{},
	}
	before := len(r.Errs)
	l.top(root)
	if len(r.Errs) > before {
		return nil, nil
	}
	warn := &settings.Reader{File: r.File, Op: r.Op}
	for _, pr := range l.p.problems() {
		to, msg := r, "cannot use the policy: "+pr.msg
		if pr.warn {
			to, msg = warn, "warning: "+pr.msg
		}
		if pr.fix != "" {
			msg += "; " + pr.fix
		}
		to.Fail(l.place(pr), pr.key, box.Errorf(box.Invalid, r.Op, "%s", msg))
	}
	if len(r.Errs) > before {
		return nil, nil
	}
	if warn.Err() != nil {
		warnings = warn.Errs
	}
	return l.p, warnings
}

// spot is where a problem can be: see [problem].
type spot struct {
	host, rule int
	key        string
}

type loader struct {
	*settings.Reader
	p      *Policy
	count  int // of rules
	places map[spot]settings.Place
}

// place finds the key that a problem is about, or what holds it.
func (l *loader) place(pr problem) settings.Place {
	for _, s := range []spot{{pr.host, pr.rule, pr.key}, {pr.host, pr.rule, ""}, {pr.host, -1, ""}} {
		if at, ok := l.places[s]; ok {
			return at
		}
	}
	return settings.Place{Line: 1, Column: 1}
}

// key is one key of a section: what reads its value, or, if it is not built
// yet, what it will do.
type key struct {
	read    func(n *yaml.Node)
	planned string
}

// section reads a mapping whose keys are known. at is where its problems are.
func (l *loader) section(n *yaml.Node, what string, host, rule int, keys map[string]key) bool {
	if !l.PlainNode(n, what) {
		return false
	}
	if n.Kind != yaml.MappingNode {
		l.Failf(settings.At(n), what, "cannot read %s: it is %s; allowed: keys with values", what, settings.Describe(n))
		return false
	}
	l.Pairs(n, what, func(name string, k, v *yaml.Node) {
		known, ok := keys[name]
		switch {
		case !ok:
			var built []string
			for k, v := range keys {
				if v.read != nil {
					built = append(built, k)
				}
			}
			slices.Sort(built)
			near := settings.Nearest(name, built)
			err := settings.UnknownKey(l.Op, name, what, near)
			if near == "" {
				err.Message += "; allowed: " + strings.Join(built, ", ")
			}
			l.Fail(settings.At(k), name, err)
		case known.read == nil:
			l.unsupported(k, name, "%s: it is not in this build (%s)", name, known.planned)
		case !l.PlainNode(v, name):
		case settings.IsNull(v):
			l.Failf(settings.At(v), name, "cannot set %s to nothing; leave the key out for the default", name)
		default:
			spotKey := name
			if what == "limits" || what == "dns" {
				spotKey = what + "." + name
			}
			l.places[spot{host, rule, spotKey}] = settings.At(v)
			known.read(v)
		}
	})
	return true
}

func (l *loader) unsupported(n *yaml.Node, key, format string, args ...any) {
	l.Fail(settings.At(n), key, box.Errorf(box.Unsupported, l.Op, "cannot use "+format, args...))
}

// wrong notes that a value is not one.
func (l *loader) wrong(n *yaml.Node, key, why string) {
	l.Failf(settings.At(n), key, "cannot set %s to %s: %s", key, settings.Describe(n), why)
}

// scalar returns the text of a single value.
func (l *loader) scalar(n *yaml.Node, key string) (string, bool) {
	if !l.PlainNode(n, key) {
		return "", false
	}
	if n.Kind != yaml.ScalarNode || settings.IsNull(n) {
		l.wrong(n, key, "allowed: a single value")
		return "", false
	}
	return n.Value, true
}

// choice reads one of the words that are built; planned maps the others that
// will be to what they do.
func (l *loader) choice(key string, to *string, built []string, planned map[string]string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := l.scalar(n, key)
		if !ok {
			return
		}
		if why, later := planned[s]; later {
			l.unsupported(n, key, "%s: %s: it is not in this build%s", key, s, why)
			return
		}
		if !slices.Contains(built, s) {
			l.wrong(n, key, "allowed: "+strings.Join(built, ", "))
			return
		}
		*to = s
	}
}

// list calls f for each element.
func (l *loader) list(n *yaml.Node, key string, most int, f func(i int, n *yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		l.wrong(n, key, "allowed: a list")
		return
	}
	if len(n.Content) > most {
		l.Failf(settings.At(n), key, "cannot set %s to %d elements; allowed: at most %d", key, len(n.Content), most)
		return
	}
	for i, e := range n.Content {
		f(i, e)
	}
}

func (l *loader) top(root *yaml.Node) {
	version, deny := "", ""
	ok := l.section(root, "the policy", -1, -1, map[string]key{
		"version":    {read: func(n *yaml.Node) { version, _ = l.scalar(n, "version") }},
		"default":    {read: l.choice("default", &deny, []string{"deny"}, nil)},
		"limits":     {read: l.limits},
		"dns":        {read: l.dns},
		"hosts":      {read: l.hosts},
		"registries": {planned: "package registries with a cooldown"},
		"taint":      {planned: "labels of what the box has read"},
		"dlp":        {planned: "scanning of what is sent"},
		"secrets":    {planned: "secrets that the gateway puts in"},
	})
	switch {
	case !ok:
	case version == "":
		l.Failf(settings.At(root), "version", "cannot use a policy without a version; write `version: 1`")
	case version != "1":
		l.Failf(l.places[spot{-1, -1, "version"}], "version", "cannot use version %s; allowed: 1", settings.Plain(version))
	}
}

func (l *loader) limits(n *yaml.Node) {
	keys := map[string]key{"rate": {read: l.rate("rate", &l.p.Limits.Rate)}, "idle": {read: l.idle}}
	for _, r := range limitRanges() {
		keys[r.key] = key{read: func(n *yaml.Node) {
			s, ok := l.scalar(n, r.key)
			if !ok {
				return
			}
			read := func(s string) (int64, error) { return settings.Decimal(s, 0) }
			if r.size {
				read = settings.Size
			}
			v, err := read(s)
			switch {
			case err != nil:
				l.wrong(n, r.key, err.Error())
			case v == 0 && r.min == 0:
				l.wrong(n, r.key, "leave it out for no limit")
			case v < r.min || v > r.max:
				l.wrong(n, r.key, fmt.Sprintf("allowed: %d to %d", max(r.min, 1), r.max))
			default:
				r.set(&l.p.Limits, v)
			}
		}}
	}
	l.section(n, "limits", -1, -1, keys)
}

func (l *loader) idle(n *yaml.Node) {
	s, ok := l.scalar(n, "idle")
	if !ok {
		return
	}
	d, err := settings.Duration(s)
	switch {
	case err != nil:
		l.wrong(n, "idle", err.Error())
	case d < minIdle || d > maxIdle:
		l.wrong(n, "idle", "allowed: 1s to 24h")
	default:
		l.p.Limits.Idle = d
	}
}

// size reads a number of bytes that is not 0.
func (l *loader) size(key string, to *int64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := l.scalar(n, key)
		if !ok {
			return
		}
		v, err := settings.Size(s)
		switch {
		case err != nil:
			l.wrong(n, key, err.Error())
		case v == 0:
			l.wrong(n, key, "leave it out for no limit")
		default:
			*to = v
		}
	}
}

// rate reads COUNT/s, COUNT/m or COUNT/h.
func (l *loader) rate(key string, to *Rate) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := l.scalar(n, key)
		if !ok {
			return
		}
		r, err := ParseRate(s)
		if err != nil {
			l.wrong(n, key, err.Error())
			return
		}
		*to = r
	}
}

// ParseRate reads a number of events by time, such as 5/s, 60/m or 1000/h.
func ParseRate(s string) (Rate, error) {
	count, unit, _ := strings.Cut(s, "/")
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	n, err := strconv.Atoi(count)
	r := Rate{n, per}
	if err != nil || per == 0 || strconv.Itoa(n) != count || r.wrong() != "" {
		return Rate{}, errors.New("allowed: a number by s, m or h, as in 60/m")
	}
	return r, nil
}

// String returns what [ParseRate] reads; empty for the zero Rate.
func (r Rate) String() string {
	switch r.Per {
	case time.Second:
		return fmt.Sprintf("%d/s", r.Count)
	case time.Minute:
		return fmt.Sprintf("%d/m", r.Count)
	case time.Hour:
		return fmt.Sprintf("%d/h", r.Count)
	}
	return ""
}

func (l *loader) dns(n *yaml.Node) {
	l.section(n, "dns", -1, -1, map[string]key{
		"resolvers": {read: func(n *yaml.Node) {
			l.p.DNS.Resolvers = []string{}
			l.list(n, "resolvers", 8, func(_ int, e *yaml.Node) {
				s, ok := l.scalar(e, "resolvers")
				if !ok {
					return
				}
				if why := wrongResolver(s); why != "" {
					l.wrong(e, "resolvers", why)
					return
				}
				l.p.DNS.Resolvers = append(l.p.DNS.Resolvers, s)
			})
		}},
		"answer": {read: l.choice("answer", &l.p.DNS.Answer, []string{"synthetic"}, map[string]string{"real": ""})},
		"dot":    {planned: "DNS over TLS to the resolvers"},
	})
}
