package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/egress/httppath"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Question is a request that somebody means to make.
type Question struct {
	Scheme string // http, https or tcp
	Method string // of http and https
	Name   hostname.Name
	Addr   netip.Addr // instead of a name
	Port   uint16
	Path   string // canonical; empty for tcp

	target  string   // of http: path and query as they came
	refused *Verdict // the name is none that a request can have
	path    *Verdict // the path is none
}

// Codes of an [Answer] beside those of hostname and of a [Verdict], as the gateway
// has them.
const (
	NotTLS       Code = "not_tls"        // the entry is for TLS, and something else is spoken
	NotPlain     Code = "not_http"       // the entry is for plain HTTP, and something else is spoken
	PathRefused  Code = "path_malformed" // servers read the path in different ways
	URLLong      Code = "url_too_long"   // longer than limits.url_bytes
	URLCharacter Code = "http_malformed" // something in it that no URL has
)

// ParseQuestion reads a method and a URL: http://HOST[:PORT][/PATH], the same
// with https, or tcp://HOST:PORT. The method may be empty, which means GET. A
// name or a path that no request may have is no error: the answer is a denial.
func ParseQuestion(method, url string) (Question, error) {
	q := Question{Method: method}
	wrong := func(format string, args ...any) (Question, error) {
		return Question{}, fmt.Errorf("cannot read URL %+.120q: "+format, append([]any{url}, args...)...)
	}
	if q.Method == "" {
		q.Method = "GET"
	}
	scheme, rest, ok := strings.Cut(url, "://")
	ports := map[string]uint16{"http": 80, "https": 443, "tcp": 0}
	port, known := ports[scheme]
	if !ok || !known {
		if !strings.Contains(url, "/") && isHost(strings.Split(url, ":")[0]) {
			return wrong("it does not say what is spoken; write https://%[2]s, http://%[2]s or tcp://HOST:PORT", url)
		}
		return wrong("allowed: http://HOST/PATH, https://HOST/PATH, tcp://HOST:PORT")
	}
	q.Scheme, q.Port = scheme, port
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	path, _, _ = strings.Cut(path, "#")
	target := path
	path, _, _ = strings.Cut(path, "?")
	if strings.Contains(authority, "@") {
		return wrong("it has a user before the host")
	}
	host, portText := authority, ""
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		host, portText = authority[:i], authority[i+1:]
		p, err := parsePort(portText)
		if err != nil {
			return wrong("%w", err)
		}
		q.Port = p
	}
	if q.Port == 0 {
		return wrong("tcp needs a port")
	}
	if scheme == "tcp" && path != "" && path != "/" {
		return wrong("tcp has no path")
	}
	literal := host
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		literal = host[1 : len(host)-1]
	}
	if a, err := netip.ParseAddr(literal); err == nil {
		q.Addr = a
	} else if q.Name, err = hostname.Parse(host); err != nil {
		q.refused = &Verdict{Code: Code(codeOf(err)), Reason: err.Error()}
	}
	if scheme == "tcp" {
		q.Method = ""
		return q, nil
	}
	if path == "" {
		path, target = "/", "/"+target
	}
	canonical, err := httppath.Canonical(path)
	if err != nil {
		q.path = &Verdict{Code: PathRefused, Reason: err.Error()}
	}
	q.Path, q.target = canonical, target
	return q, nil
}

func codeOf(err error) hostname.Code {
	if e, ok := errors.AsType[*hostname.Error](err); ok {
		return e.Code
	}
	return ""
}

// Answer is what a policy says to a [Question], step by step.
type Answer struct {
	Verdict
	Steps []string // one sentence each, in the order in which the gateway decides
}

// Explain answers a question as the gateway would, up to what only the network
// knows: which addresses the name has.
func (p *Policy) Explain(q Question) Answer {
	var a Answer
	step := func(format string, args ...any) { a.Steps = append(a.Steps, fmt.Sprintf(format, args...)) }
	end := func(v Verdict) Answer {
		a.Verdict = v
		step("%s", v.Reason)
		return a
	}
	if q.refused != nil {
		return end(*q.refused)
	}
	if q.Port == 53 {
		step("whatever goes to port 53 is answered by the gateway's own resolver, and goes nowhere")
	}
	var h *Host
	var v Verdict
	if q.Addr.IsValid() {
		step("%s is an address; only entries with a cidr and without a host are for connections by address", q.Addr)
		h, v = p.CIDR(netip.AddrPortFrom(q.Addr, q.Port))
	} else {
		if p.Name(q.Name) {
			step("the name %s is answered, with a synthetic address", q.Name)
		} else {
			step("the name %s is not answered (NXDOMAIN)", q.Name)
		}
		h, v = p.Host(q.Name, q.Port)
	}
	if h == nil {
		return end(v)
	}
	if !q.Addr.IsValid() {
		step("the entry %s%s is for %s on port %d", h.Name, h.at(), q.Name, q.Port)
		if h.CIDR.IsValid() {
			step("all addresses of the name must lie in %s", h.CIDR)
		} else {
			step("all addresses of the name must be public ones")
		}
		for _, d := range h.never {
			if d.onPort(q.Port) {
				step("and none of them may lie in %s, which the entry %s%s denies", d.CIDR, d.Name, d.at())
			}
		}
	}
	wants := map[Mode]string{Splice: "https", HTTP: "http", TCP: q.Scheme}[h.Mode]
	if wants != q.Scheme {
		return end(Verdict{Rule: h.Name, Code: map[Mode]Code{Splice: NotTLS, HTTP: NotPlain}[h.Mode], Reason: fmt.Sprintf("the entry %s is for %s, and %s is refused by its first bytes", h.Name, speaks(h.Mode), q.Scheme)})
	}
	switch h.Mode {
	case Splice:
		step("the connection passes unread once its TLS hello names %s: method and path are not seen", q.Name)
	case TCP:
		step("the connection passes unread, whatever is spoken on it")
	case HTTP:
		return end(h.explain(q, p.Limits))
	}
	return end(v)
}

// explain answers for one plain request, in the order in which it is read.
func (h *Host) explain(q Question, l Limits) Verdict {
	odd := strings.IndexFunc(q.target, func(r rune) bool { return r <= 0x20 || r >= 0x7f })
	switch {
	case len(q.target) > l.URLBytes:
		return Verdict{Rule: h.Name, Code: URLLong, Reason: fmt.Sprintf("the URL has %d bytes after its host, and limits.url_bytes is %d", len(q.target), l.URLBytes)}
	case odd >= 0:
		return Verdict{Rule: h.Name, Code: URLCharacter, Reason: fmt.Sprintf("the URL has the character %+q, which must be encoded", []rune(q.target[odd:])[0])}
	case q.path != nil:
		v := *q.path
		v.Rule = h.Name
		return v
	}
	_, query, _ := strings.Cut(q.target, "?")
	return h.Request(Request{Method: q.Method, Path: q.Path, Query: query})
}

func speaks(m Mode) string {
	switch m {
	case Splice:
		return "TLS"
	case HTTP:
		return "plain HTTP"
	}
	return "any bytes"
}

// Expectation is one line of a table of what a policy should say.
type Expectation struct {
	Line  int // from 1
	Text  string
	Allow bool
	Question
}

// ParseExpectations reads a table, one expectation a line: "allow" or "deny",
// a method if it is not GET, and a URL. Empty lines and what follows a # at the
// beginning of a line or after a space are left aside. A table without an
// expectation is an error: it would prove nothing.
func ParseExpectations(name, text string) ([]Expectation, error) {
	var out []Expectation
	line := 0
	for l := range strings.SplitSeq(text, "\n") {
		line++
		l, _, _ = strings.Cut(" "+l, " #")
		f := strings.Fields(l)
		if len(f) == 0 {
			continue
		}
		wrong := func(err error) error { return fmt.Errorf("cannot read %s:%d: %w", name, line, err) }
		if len(f) > 3 || len(f) < 2 || f[0] != "allow" && f[0] != "deny" {
			return nil, wrong(fmt.Errorf("write allow or deny, a method if it is not GET, and a URL"))
		}
		method := ""
		if len(f) == 3 {
			method = f[1]
		}
		q, err := ParseQuestion(method, f[len(f)-1])
		if err != nil {
			return nil, wrong(err)
		}
		out = append(out, Expectation{line, strings.Join(f[1:], " "), f[0] == "allow", q})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("cannot read %s: there is no expectation in it", name)
	}
	return out, nil
}

// MarshalJSON writes an answer flat.
func (a Answer) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Decision string   `json:"decision"`
		Code     Code     `json:"code"`
		Rule     string   `json:"rule,omitempty"`
		Reason   string   `json:"reason"`
		Fix      string   `json:"fix,omitempty"`
		Steps    []string `json:"steps"`
	}{decision(a.Allow), a.Code, a.Rule, a.Reason, a.Fix, a.Steps})
}

func decision(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}
