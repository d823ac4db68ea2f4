package rules

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/sunaba-dev/sunaba/internal/egress/httppath"
	"github.com/sunaba-dev/sunaba/internal/egress/special"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Name reports whether some port of n may be reached: whether its name is
// answered at all.
func (p *Policy) Name(n hostname.Name) bool {
	if hostname.Metadata(n) {
		return false
	}
	var denied map[uint16]bool
	for i := range p.Hosts {
		h := &p.Hosts[i]
		if !h.Deny || !h.Host.Match(n) {
			continue
		}
		if len(h.Ports) == 0 {
			return false
		}
		if denied == nil {
			denied = map[uint16]bool{}
		}
		for _, port := range h.Ports {
			denied[port] = true
		}
	}
	for i := range p.Hosts {
		h := &p.Hosts[i]
		if !h.Deny && h.Host.Match(n) && slices.ContainsFunc(h.Ports, func(port uint16) bool { return !denied[port] }) {
			return true
		}
	}
	return false
}

// Host answers for a name with a port. The Host is nil unless it is allowed.
func (p *Policy) Host(n hostname.Name, port uint16) (*Host, Verdict) {
	if d := p.denying(n, port); d != nil {
		return nil, Verdict{Rule: d.Name, Code: DeniedByRule,
			Reason: fmt.Sprintf("%s:%d is denied by the entry %s", n, port, d.Name)}
	}
	if hostname.Metadata(n) { // a wildcard may be for it
		return nil, Verdict{Code: BadName, Reason: fmt.Sprintf("%s is a cloud's metadata service, which no entry can allow", n)}
	}
	known := ""
	for i := range p.Hosts {
		h := &p.Hosts[i]
		if h.Deny || !h.Host.Match(n) {
			continue
		}
		if slices.Contains(h.Ports, port) {
			return h, Verdict{Allow: true, Rule: h.Name, Code: Allowed, Budget: h.Budget,
				Reason: fmt.Sprintf("%s:%d is allowed by the entry %s", n, port, h.Name)}
		}
		known = h.Name
	}
	v := Verdict{Code: NotListed, Fix: p.hostFix(n, port), Reason: fmt.Sprintf("no entry of the policy is for %s", n)}
	if known != "" {
		v.Code, v.Rule = PortClosed, known
		v.Reason = fmt.Sprintf("the entry %s is for %s, but not for port %d", known, n, port)
	}
	return nil, v
}

func (p *Policy) denying(n hostname.Name, port uint16) *Host {
	for i := range p.Hosts {
		h := &p.Hosts[i]
		if h.Deny && h.Host.Match(n) && h.onPort(port) {
			return h
		}
	}
	return nil
}

// onPort reports whether the entry is for a port.
func (h *Host) onPort(port uint16) bool { return len(h.Ports) == 0 || slices.Contains(h.Ports, port) }

// CIDR answers for a connection to an address that no name was asked for. Only
// entries without a host, for a private network, can allow it. The Host is nil
// unless it is allowed.
func (p *Policy) CIDR(to netip.AddrPort) (*Host, Verdict) {
	addr := to.Addr().Unmap()
	if why, ok := (special.Table{}).Internal(addr); !ok {
		return nil, Verdict{Code: NotListed, Reason: fmt.Sprintf("%s was given no name, and no entry can allow it by address: %s", addr, why)}
	}
	var found *Host
	known := ""
	for i := range p.Hosts {
		h := &p.Hosts[i]
		switch {
		case !h.Host.IsZero() || !h.CIDR.Contains(addr):
		case h.Deny && h.onPort(to.Port()):
			return nil, Verdict{Rule: h.Name, Code: DeniedByRule,
				Reason: fmt.Sprintf("%s is denied by the entry %s", to, h.Name)}
		case h.Deny:
		case h.onPort(to.Port()):
			found = h
		default:
			known = h.Name
		}
	}
	switch {
	case found != nil:
		return found, Verdict{Allow: true, Rule: found.Name, Code: Allowed, Budget: found.Budget,
			Reason: fmt.Sprintf("%s is allowed by the entry %s", to, found.Name)}
	case known != "":
		return nil, Verdict{Rule: known, Code: PortClosed, Fix: p.cidrFix(to),
			Reason: fmt.Sprintf("the entry %s is for %s, but not for port %d", known, addr, to.Port())}
	}
	return nil, Verdict{Code: NotListed, Fix: p.cidrFix(to), Reason: fmt.Sprintf("no entry of the policy is for the address %s", addr)}
}

// Address answers for one address that the entry's name was resolved to, or
// that was connected to without a name. t knows how this network hides IPv4 addresses.
// Everything that a resolver said must be asked for, and the address that is
// dialed again. Entries of the policy that deny by address hold here, too: a
// name is no way around them.
func (h *Host) Address(t special.Table, to netip.AddrPort) Verdict {
	a := to.Addr()
	v := Verdict{Rule: h.Name, Code: BadAddress}
	for _, d := range h.never {
		if slices.ContainsFunc(append(t.Translated(a), a.Unmap()), d.CIDR.Contains) && d.onPort(to.Port()) {
			return Verdict{Rule: d.Name, Code: DeniedByRule, Reason: fmt.Sprintf("the address %s is denied by the entry %s", a, d.Name)}
		}
	}
	if !h.CIDR.IsValid() {
		why, ok := t.Check(a)
		if ok {
			return Verdict{Allow: true, Rule: h.Name, Code: Allowed, Reason: fmt.Sprintf("%s is a public address", a)}
		}
		v.Reason = fmt.Sprintf("the address %s is refused: %s", a, why)
		if _, ok := t.Internal(a); ok {
			v.Fix = h.addressFix(a, to.Port())
		}
		return v
	}
	if why, ok := t.Internal(a); !ok {
		v.Reason = fmt.Sprintf("the address %s is refused: %s", a, why)
		return v
	}
	if !h.CIDR.Contains(a.Unmap()) {
		v.Code = OutsideCIDR
		v.Reason = fmt.Sprintf("the address %s is not in %s", a, h.CIDR)
		return v
	}
	return Verdict{Allow: true, Rule: h.Name, Code: Allowed, Reason: fmt.Sprintf("%s is in %s", a, h.CIDR)}
}

// Request is what rules look at in a request.
type Request struct {
	Method string // as it came
	Path   string // in the form of httppath.Canonical
	Query  string // as it came; with or without its question mark
	Body   bool   // bytes follow its head
}

// Methods lists the methods that a rule can allow. TRACE and CONNECT are not
// among them.
func Methods() []string {
	return []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
}

// Request answers for one request to the host, which must be in mode [HTTP].
func (h *Host) Request(r Request) Verdict {
	if h.Mode != HTTP {
		return Verdict{Rule: h.Name, Code: NotHTTP, Reason: fmt.Sprintf("requests to the entry %s are not read: it is for %s", h.Name, h.Mode)}
	}
	if !slices.Contains(Methods(), r.Method) {
		return Verdict{Rule: h.Name, Code: BadMethod, Reason: fmt.Sprintf("no rule can allow the method %+.32q", r.Method)}
	}
	if canonical, err := httppath.Canonical(r.Path); err != nil || canonical != r.Path {
		return Verdict{Rule: h.Name, Code: BadPath, Reason: fmt.Sprintf("the path %+.128q is not in its canonical form", r.Path)}
	}
	if len(h.Rules) == 0 {
		return Verdict{Allow: true, Rule: h.Name, Code: Allowed, Budget: h.Budget, Reason: fmt.Sprintf("the entry %s allows all requests", h.Name)}
	}
	var found *Rule
	var liberal []string // readings of the path, made once: each of many rules is asked
	onPath := false
	for i := range h.Rules {
		rule := &h.Rules[i]
		path := rule.onPath(r.Path)
		if !path && rule.Deny && rule.onMethod(r.Method) {
			if liberal == nil {
				liberal = readings(r.Path)
			}
			path = rule.onReadings(liberal)
		}
		switch {
		case path && rule.Deny && rule.onMethod(r.Method):
			return Verdict{Rule: h.Name + "/" + rule.Name, Code: DeniedByRule,
				Reason: fmt.Sprintf("%s %s is denied by the rule %s/%s", r.Method, r.Path, h.Name, rule.Name)}
		case !path || rule.Deny:
		case rule.onMethod(r.Method):
			found = rule
		default:
			onPath = true
		}
	}
	if found != nil {
		if v := r.beyond(); v.Code != "" {
			v.Rule = h.Name + "/" + found.Name
			return v
		}
		return Verdict{Allow: true, Rule: h.Name + "/" + found.Name, Code: Allowed, Budget: found.Budget,
			Reason: fmt.Sprintf("%s %s is allowed by the rule %s/%s", r.Method, r.Path, h.Name, found.Name)}
	}
	v := Verdict{Rule: h.Name, Code: PathClosed, Fix: requestFix(h, r), Reason: fmt.Sprintf("no rule of the entry %s is for the path %s", h.Name, r.Path)}
	if onPath {
		v.Code = MethodClosed
		v.Reason = fmt.Sprintf("no rule of the entry %s allows %s on the path %s", h.Name, r.Method, r.Path)
	}
	return v
}

// beyond denies what would make something else of a request than its rule is asked
// about, or let it carry more than a head has room for. Its code is empty if there is
// no such thing.
func (r Request) beyond() Verdict {
	switch {
	case r.Body && (r.Method == "GET" || r.Method == "HEAD" || r.Method == "OPTIONS"):
		return Verdict{Code: BodyClosed, Reason: r.Method + " only asks, and this one has a body all the same: under rules that is for methods that write"}
	case overridden(r.Query):
		return Verdict{Code: Overridden, Reason: "its query names another method, which some servers take for the request's"}
	}
	return Verdict{}
}

// overridden reports whether a query has a parameter from which some servers take
// the method: "_method" of most frameworks, and the fields of that name. Parameters
// are read as widely as any server does.
func overridden(query string) bool {
	for part := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '?' || r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(part, "=")
		if text, err := url.QueryUnescape(name); err == nil {
			name = text
		}
		name, _, _ = strings.Cut(strings.ToLower(name), "[") // a list of one
		word := strings.FieldsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
		switch strings.Join(word, "-") {
		case "http-method", "method-override", "http-method-override", "x-http-method-override", "x-http-method", "x-method-override":
			return true
		case "method", "httpmethod": // ordinary words, but for what stands before them
			if name[0] < 'a' || name[0] > 'z' { // as in _method
				return true
			}
		}
	}
	return false
}

func (r *Rule) onMethod(m string) bool { return len(r.Methods) == 0 || slices.Contains(r.Methods, m) }

func (r *Rule) onPath(path string) bool {
	return len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, func(p Path) bool { return p.Match(path) })
}

// onReadings compares as the most liberal of servers would: what denies must not be
// passed by a capital letter, a parameter, a slash or a dot at the end, or by
// what a file system takes for the same name.
func (r *Rule) onReadings(path []string) bool {
	for _, p := range r.wide {
		if slices.ContainsFunc(path, func(s string) bool { return match(p, s) }) {
			return true
		}
	}
	return false
}

// readings are the forms of a path, without its first slash, that wide compares: all
// of it; what is before an encoded question mark or hash, since some servers decode a
// path and then look for where it ends; and each without the last segment's ending,
// which is no part of the path where it says in what format to answer (/x.json).
func readings(path string) []string {
	segs := segments(path)
	var short []string
	for i, s := range segs {
		if decoded, err := url.PathUnescape(s); err == nil { // it is canonical, so there is no error
			s = decoded
		}
		s = likeness(s)
		if j := strings.IndexAny(s, "?#"); j >= 0 && short == nil {
			short = append(slices.Clone(segs[:i]), plainly(s[:j]))
		}
		segs[i] = plainly(s)
	}
	all := forms(segs)
	if short != nil {
		all = append(all, forms(short)...)
	}
	return all
}

// plainly is a segment, decoded, as the most liberal of servers sees it.
func plainly(s string) string {
	if i := strings.IndexByte(s, ':'); i > 0 && strings.Contains(s[i:], ":$") { // a stream of NTFS, as ::$DATA
		s = s[:i]
	}
	s, _, _ = strings.Cut(s, ";")
	if s == "*" || s == "**" {
		return s
	}
	s = strings.TrimLeftFunc(s, httppath.Blank)
	return strings.TrimRightFunc(s, func(r rune) bool { return r == '.' || httppath.Blank(r) })
}

// forms are a path of such segments as it is, and without an ending.
func forms(segs []string) []string {
	if n := len(segs); n > 1 && segs[n-1] == "" {
		segs = segs[:n-1]
	}
	all := []string{strings.Join(segs, "/")}
	last := len(segs) - 1
	if i := strings.LastIndexByte(segs[last], '.'); i > 0 {
		stem := append(slices.Clone(segs[:last]), segs[last][:i])
		all = append(all, strings.Join(stem, "/"))
	}
	return all
}

// likeness is a text as the server, file system or database takes it that tells the
// fewest apart: in whatever case, width or form a letter is (compatibility mapping,
// UAX 15, and so for semicolons), with or without accents, and without marks that have
// no shape.
func likeness(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		s = strings.NewReplacer("ß", "ss", "ẞ", "ss").Replace(norm.NFKD.String(s))
	}
	return strings.Map(func(r rune) rune {
		if httppath.Shapeless(r) || unicode.Is(unicode.Mn, r) && unicode.Is(unicode.Inherited, r) { // vowels of some scripts are Mn, too
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r))
	}, s)
}

func (p *Policy) hostFix(n hostname.Name, port uint16) string {
	why, private := hostname.Special(n)
	switch {
	case hostname.Metadata(n), why != "" && !private, port == 53, why != "" && p.Short:
		return ""
	case why != "":
		return fmt.Sprintf("- { host: %s, port: %d, tls: splice, cidr: NETWORK, sink: internal }", n, port)
	case p.Short && neverTLS(port):
		return fmt.Sprintf("%s:%d/tcp", n, port)
	case p.Short:
		return fmt.Sprintf("%s:%d", n, port)
	case neverTLS(port):
		return fmt.Sprintf("- { host: %s, port: %d, protocol: tcp }", n, port)
	case port == 443:
		return fmt.Sprintf("- { host: %s, tls: splice }", n)
	case port == 80:
		return fmt.Sprintf("- { host: %s, port: 80 }", n)
	}
	return fmt.Sprintf("- { host: %s, port: %d, tls: splice }", n, port)
}

func (p *Policy) cidrFix(to netip.AddrPort) string {
	a := to.Addr().Unmap()
	form := ""
	if p.Short {
		form = "a policy file with "
	}
	return form + fmt.Sprintf("- { cidr: %s, port: %d, protocol: tcp, sink: internal }", netip.PrefixFrom(a, a.BitLen()), to.Port())
}

func requestFix(h *Host, r Request) string {
	path, err := json.Marshal(r.Path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("- { methods: [%s], paths: [%s] } in the rules of %s", r.Method, path, h.Name)
}
