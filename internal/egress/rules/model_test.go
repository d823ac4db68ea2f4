package rules_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/egress/special"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// The model is a policy as text, and a judge that is slow and obvious: it
// lists what an entry stands for and looks the question up. It shares nothing
// with the package but the file's form.
type modelRule struct {
	methods []string // nil: all
	paths   []string // nil: all
	deny    bool
}

type modelHost struct {
	host, cidr string
	ports      []int // nil, for deny only: all
	mode       string
	deny       bool
	rules      []modelRule
}

func (m modelHost) yaml() string {
	var b strings.Builder
	b.WriteString("  - {")
	if m.host != "" {
		fmt.Fprintf(&b, " host: %q,", m.host)
	}
	if m.cidr != "" {
		fmt.Fprintf(&b, " cidr: %q, sink: internal,", m.cidr)
	}
	if m.ports != nil {
		fmt.Fprintf(&b, " ports: [%s],", strings.ReplaceAll(strings.Trim(fmt.Sprint(m.ports), "[]"), " ", ", "))
	}
	switch {
	case m.deny:
		b.WriteString(" decide: deny,")
	case m.mode == "splice":
		b.WriteString(" tls: splice,")
	default:
		fmt.Fprintf(&b, " protocol: %s,", m.mode)
	}
	if len(m.rules) > 0 {
		b.WriteString(" rules: [")
		for i, r := range m.rules {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(" {")
			if r.methods != nil {
				fmt.Fprintf(&b, " methods: [%s],", strings.Join(r.methods, ", "))
			} else {
				b.WriteString(` methods: ["*"],`)
			}
			if r.paths != nil {
				b.WriteString(` paths: ["` + strings.Join(r.paths, `", "`) + `"],`)
			}
			if r.deny {
				b.WriteString(" decide: deny")
			}
			b.WriteString(" }")
		}
		b.WriteString(" ]")
	}
	return b.String() + " }\n"
}

// The little world in which questions are asked: everything in it is listed.
var (
	worldNames   = []string{"a.test", "b.a.test", "c.b.a.test", "xa.test", "b.test", "test.a", "a.test.b"}
	worldPorts   = []int{80, 443, 8080}
	worldAddrs   = []string{"10.0.0.1", "10.0.1.1", "10.1.0.1", "192.168.0.1", "8.8.8.8", "127.0.0.1", "169.254.169.254"}
	worldMethods = []string{"GET", "POST", "PUT", "TRACE", "get"}
	worldPaths   = []string{"/", "/a", "/a/", "/b", "/a/b", "/a/b/", "/a/b/c", "/a/c/c", "/A", "/a./b"}
)

type question struct {
	name, addr string // by name, and what it is resolved to; or by address
	byAddr     bool
	port       int
	method     string
	path       string
}

func (m modelHost) isFor(q question) bool {
	if m.ports != nil && !slices.Contains(m.ports, q.port) {
		return false
	}
	if q.byAddr {
		return m.host == "" && inNetwork(m.cidr, q.addr)
	}
	if m.host == "" {
		return false
	}
	want, got := strings.Split(m.host, "."), strings.Split(q.name, ".")
	if want[0] != "*" {
		return slices.Equal(want, got)
	}
	for i := 1; i < len(got); i++ { // each way to put at least one label for the star
		if slices.Equal(got[i:], want[1:]) {
			return true
		}
	}
	return false
}

func inNetwork(cidr, addr string) bool {
	switch cidr {
	case "10.0.0.0/24":
		return strings.HasPrefix(addr, "10.0.0.")
	case "10.0.0.0/16":
		return strings.HasPrefix(addr, "10.0.")
	case "192.168.0.0/16":
		return strings.HasPrefix(addr, "192.168.")
	case "8.0.0.0/8": // denied only
		return strings.HasPrefix(addr, "8.")
	}
	return false
}

func pathIs(pattern, path string, wide bool) bool {
	p, q := strings.Split(pattern, "/")[1:], strings.Split(path, "/")[1:]
	if wide {
		q = strings.Split(strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(path), "./", "/"), "/"), "/")[1:]
		p = strings.Split(strings.TrimSuffix(pattern, "/"), "/")[1:]
		if len(q) == 0 {
			q = []string{""}
		}
		if len(p) == 0 {
			p = []string{""}
		}
	}
	if p[len(p)-1] == "**" {
		p = p[:len(p)-1]
		if len(q) < len(p) {
			return false
		}
		q = q[:len(p)]
	}
	if len(p) != len(q) {
		return false
	}
	for i := range p {
		if p[i] != q[i] && !(p[i] == "*" && q[i] != "") {
			return false
		}
	}
	return true
}

func (r modelRule) isFor(q question) bool {
	if !slices.Contains([]string{"GET", "POST", "PUT"}, q.method) || r.methods != nil && !slices.Contains(r.methods, q.method) {
		return false
	}
	return r.paths == nil || slices.ContainsFunc(r.paths, func(p string) bool { return pathIs(p, q.path, false) || r.deny && pathIs(p, q.path, true) })
}

// modelAllows is the judge.
func modelAllows(hosts []modelHost, q question) bool {
	var allowing []modelHost
	for _, m := range hosts {
		if !m.isFor(q) {
			continue
		}
		if m.deny {
			return false
		}
		allowing = append(allowing, m)
	}
	if len(allowing) == 0 {
		return false
	}
	for _, d := range hosts { // denied by address
		if d.deny && d.host == "" && inNetwork(d.cidr, q.addr) && (d.ports == nil || slices.Contains(d.ports, q.port)) {
			return false
		}
	}
	m := allowing[0] // entries that overlap mean the same, or the policy is refused
	private := strings.HasPrefix(q.addr, "10.") || strings.HasPrefix(q.addr, "192.168.")
	switch {
	case m.cidr != "" && !(private && inNetwork(m.cidr, q.addr)):
		return false
	case m.cidr == "" && q.addr != "8.8.8.8":
		return false
	case m.mode != "http":
		return true
	case len(m.rules) == 0:
		return slices.Contains([]string{"GET", "POST", "PUT"}, q.method)
	}
	allowed := false
	for _, r := range m.rules {
		if r.isFor(q) {
			if r.deny {
				return false
			}
			allowed = true
		}
	}
	return allowed
}

func allows(p *rules.Policy, q question) bool {
	var h *rules.Host
	var v rules.Verdict
	addr := netip.MustParseAddr(q.addr)
	if q.byAddr {
		h, v = p.CIDR(netip.AddrPortFrom(addr, uint16(q.port)))
	} else {
		h, v = p.Host(hostname.Name(q.name), uint16(q.port))
	}
	if !v.Allow || !h.Address(special.Table{}, netip.AddrPortFrom(addr, uint16(q.port))).Allow {
		return false
	}
	return h.Mode != rules.HTTP || h.Request(rules.Request{Method: q.method, Path: q.path}).Allow
}

func everyQuestion() []question {
	var out []question
	for _, port := range worldPorts {
		for _, addr := range worldAddrs {
			for _, method := range worldMethods {
				for _, path := range worldPaths {
					for _, n := range worldNames {
						out = append(out, question{name: n, addr: addr, port: port, method: method, path: path})
					}
					out = append(out, question{byAddr: true, addr: addr, port: port, method: method, path: path})
				}
			}
		}
	}
	return out
}

func genHosts() *rapid.Generator[[]modelHost] {
	path := rapid.SampledFrom([]string{"/", "/a", "/a/", "/a/b", "/*", "/a/*", "/*/b", "/**", "/a/**", "/a/*/c", "/b"})
	rule := rapid.Custom(func(t *rapid.T) modelRule {
		r := modelRule{deny: rapid.IntRange(0, 2).Draw(t, "deny") == 0}
		if rapid.Bool().Draw(t, "some") {
			r.methods = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "POST", "PUT"}), 1, 2, rapid.ID).Draw(t, "methods")
		}
		if rapid.Bool().Draw(t, "paths") {
			r.paths = rapid.SliceOfNDistinct(path, 1, 2, rapid.ID).Draw(t, "path")
		}
		return r
	})
	host := rapid.Custom(func(t *rapid.T) modelHost {
		m := modelHost{mode: rapid.SampledFrom([]string{"splice", "http", "http", "tcp"}).Draw(t, "mode"), deny: rapid.IntRange(0, 3).Draw(t, "deny") == 0}
		m.host = rapid.SampledFrom([]string{"a.test", "b.a.test", "*.a.test", "*.b.a.test", "c.b.a.test", "b.test", ""}).Draw(t, "host")
		if m.host == "" || rapid.IntRange(0, 3).Draw(t, "net") == 0 {
			m.cidr = rapid.SampledFrom([]string{"10.0.0.0/24", "10.0.0.0/16", "192.168.0.0/16"}).Draw(t, "cidr")
		}
		if m.host == "" || m.mode == "tcp" && strings.HasPrefix(m.host, "*") {
			m.mode = map[bool]string{true: "tcp", false: "splice"}[m.host == ""]
		}
		if !m.deny || rapid.Bool().Draw(t, "ports") {
			m.ports = rapid.SliceOfNDistinct(rapid.SampledFrom(worldPorts), 1, 2, rapid.ID).Draw(t, "port")
		}
		if m.deny && m.host != "" {
			m.cidr = ""
		}
		if m.deny && m.host == "" && rapid.Bool().Draw(t, "public") {
			m.cidr = "8.0.0.0/8"
		}
		if m.mode == "http" && !m.deny {
			m.rules = rapid.SliceOfN(rule, 0, 3).Draw(t, "rules")
		}
		return m
	})
	return rapid.SliceOfN(host, 0, 4)
}

func textOf(hosts []modelHost) string {
	text := "version: 1\nhosts:\n"
	if len(hosts) == 0 {
		text = "version: 1\nhosts: []\n"
	}
	for _, m := range hosts {
		text += m.yaml()
	}
	return text
}

func TestTheMatcherSaysWhatTheSlowAndObviousModelSays(t *testing.T) {
	all := everyQuestion()
	accepted, allowed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		hosts := genHosts().Draw(t, "hosts")
		p, err := rules.Load("p.yaml", []byte(textOf(hosts)))
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.Contains(line, "overlaps") && !strings.Contains(line, "nothing reaches") {
					t.Fatalf("%s\n%s", textOf(hosts), line)
				}
			}
			return
		}
		accepted++
		q, err := rules.Parse(p.JSON())
		if err != nil {
			t.Fatal(err)
		}
		for _, ask := range all {
			want := modelAllows(hosts, ask)
			if want {
				allowed++
			}
			if got := allows(q, ask); got != want {
				t.Fatalf("%s%+v: %v, want %v", textOf(hosts), ask, got, want)
			}
		}
	})
	if accepted < 20 || allowed < 100 {
		t.Fatalf("%d policies were accepted and %d questions allowed: the test shows nothing", accepted, allowed)
	}
}

// tells reports whether a line of a diff is about a question.
func tells(r rules.Reach, q question) bool {
	switch {
	case r.Port != 0 && int(r.Port) != q.port:
		return false
	case !r.Host.IsZero() && (q.byAddr || !r.Host.Match(hostname.Name(q.name))):
		return false
	case r.Host.IsZero() && !q.byAddr && r.Kind != "denial": // what denies by address holds for names, too
		return false
	case r.Kind == "limit", r.Host.IsZero() && !r.CIDR.Contains(netip.MustParseAddr(q.addr)):
		return false
	case len(r.Methods) > 0 && !slices.Contains(r.Methods, q.method):
		return false
	case r.Path.String() != "" && !r.Path.Match(q.path) && !(r.Kind == "denial" && pathIs(r.Path.String(), q.path, true)):
		return false
	}
	return true
}

func TestADiffTellsEverythingThatAChangeAllowsOrForbids(t *testing.T) {
	all := everyQuestion()
	changed := 0
	rapid.Check(t, func(t *rapid.T) {
		before, after := genHosts().Draw(t, "before"), genHosts().Draw(t, "after")
		if rapid.Bool().Draw(t, "small") && len(before) > 0 { // one that shares most
			after = append(slices.Clone(before[1:]), after...)
			after = after[:min(len(after), 5)]
		}
		p, err1 := rules.Load("p.yaml", []byte(textOf(before)))
		q, err2 := rules.Load("q.yaml", []byte(textOf(after)))
		if err1 != nil || err2 != nil {
			return
		}
		diff := rules.Diff(p, q)
		for _, ask := range all {
			was, is := allows(p, ask), allows(q, ask)
			if was == is {
				continue
			}
			changed++
			if !slices.ContainsFunc(diff, func(r rules.Reach) bool { return r.Added == is && tells(r, ask) }) {
				t.Fatalf("%sbecomes\n%s%+v: allowed %v, then %v; the diff does not tell: %+v", textOf(before), textOf(after), ask, was, is, diff)
			}
		}
		if same := rules.Diff(p, p); len(same) != 0 {
			t.Fatalf("%s differs from itself: %+v", textOf(before), same)
		}
	})
	if changed < 100 {
		t.Fatalf("%d answers changed: the test shows nothing", changed)
	}
}
