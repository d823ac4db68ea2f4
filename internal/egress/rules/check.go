package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/special"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// The bounds of a policy.
const (
	MaxHosts = 2048
	MaxRules = 256 // of one entry
	maxPorts = 64  // of one entry
	maxPaths = 512 // of all rules of an entry together
	// Of all entries together. Rules and paths of an entry are compared pair by pair,
	// so that this bounds how long it takes to check what a caller sends.
	maxAllRules = 4096
	maxAllPaths = 8192
	maxName     = 255 // bytes
)

// problem is something that a policy may not say, or, with warn, should not.
type problem struct {
	host, rule int    // of which entry and rule; -1 if of none
	key        string // in the file
	msg, fix   string
	warn       bool
}

// checker looks at values only, so that a policy is refused for the same
// reasons whichever way it came.
type checker struct {
	p            *Policy
	out          []problem
	rules, paths int // seen so far
	full         bool
}

func (c *checker) add(host, rule int, key, fix, format string, args ...any) {
	c.out = append(c.out, problem{host: host, rule: rule, key: key, fix: fix, msg: fmt.Sprintf(format, args...)})
}

// check returns everything that is wrong as one error.
func (p *Policy) check() error {
	var errs []error
	for _, pr := range p.problems() {
		if pr.warn {
			continue
		}
		text := pr.msg
		if pr.host >= 0 {
			text = p.Hosts[pr.host].Name + ": " + text
		}
		if pr.fix != "" {
			text += "; " + pr.fix
		}
		errs = append(errs, fmt.Errorf("cannot use policy: %s", text))
	}
	return errors.Join(errs...)
}

// Warnings says what the policy allows and likely should not, a line each; empty
// if there is nothing. See [Lint] for places in a file.
func (p *Policy) Warnings() []string {
	var out []string
	for _, pr := range (&Policy{Version: p.Version, Short: p.Short, Limits: p.Limits, DNS: p.DNS, Hosts: slices.Clone(p.Hosts)}).problems() {
		if pr.warn {
			out = append(out, fmt.Sprintf("%s: %s; %s", p.Hosts[pr.host].Name, pr.msg, pr.fix))
		}
	}
	return out
}

func (p *Policy) problems() []problem {
	c := &checker{p: p}
	c.head()
	if len(p.Hosts) > MaxHosts {
		c.add(-1, -1, "hosts", "", "it has %d entries; allowed: at most %d", len(p.Hosts), MaxHosts)
		return c.out
	}
	names := map[string]int{}
	for i := range p.Hosts {
		h := &p.Hosts[i]
		if at, ok := names[h.Name]; ok {
			c.add(i, -1, "name", "", "entry %d has the same name, %s", at, h.Name)
		}
		names[h.Name] = i
		c.host(i, h)
	}
	if len(c.out) == 0 { // overlaps of what makes no sense make none
		c.overlaps()
	}
	if !slices.ContainsFunc(c.out, func(pr problem) bool { return !pr.warn }) {
		if n := len(p.JSON()); n > MaxJSON {
			c.add(-1, -1, "hosts", "", "it has %d bytes in its canonical form; allowed: at most %d", n, MaxJSON)
		}
		c.warnings()
	}
	p.link()
	return c.out
}

// link gives each entry the ones that deny by address, and each rule that denies
// its paths as they are compared.
func (p *Policy) link() {
	var never []*Host
	for i := range p.Hosts {
		if h := &p.Hosts[i]; h.Deny && h.Host.IsZero() {
			never = append(never, h)
		}
	}
	for i := range p.Hosts {
		h := &p.Hosts[i]
		if h.Deny {
			continue
		}
		h.never, h.short = never, p.Short
		for j := range h.Rules {
			r := &h.Rules[j]
			r.wide = nil
			for _, path := range r.Paths {
				if r.Deny && path != (Path{}) {
					r.wide = append(r.wide, readings(path.text)[0])
				}
			}
		}
	}
}

func (c *checker) head() {
	p, l := c.p, c.p.Limits
	if p.Version != Version {
		c.add(-1, -1, "version", "", "the version is %d; allowed: %d", p.Version, Version)
	}
	for _, r := range limitRanges() {
		if n := r.get(&l); n < r.min || n > r.max {
			c.add(-1, -1, "limits."+r.key, "", "limits.%s is %d; allowed: %d to %d", r.key, n, r.min, r.max)
		}
	}
	if why := l.Rate.wrong(); why != "" {
		c.add(-1, -1, "limits.rate", "", "limits.rate: %s", why)
	}
	if l.Idle != 0 && (l.Idle < minIdle || l.Idle > maxIdle) {
		c.add(-1, -1, "limits.idle", "", "limits.idle is %s; allowed: 1s to 24h", l.Idle)
	}
	if p.DNS.Answer != "synthetic" {
		c.add(-1, -1, "dns.answer", "", "dns.answer is %+.40q; allowed: synthetic", p.DNS.Answer)
	}
	if len(p.DNS.Resolvers) == 0 || len(p.DNS.Resolvers) > 8 {
		c.add(-1, -1, "dns.resolvers", "", "there are %d resolvers; allowed: 1 to 8", len(p.DNS.Resolvers))
	}
	for _, r := range p.DNS.Resolvers {
		if why := wrongResolver(r); why != "" {
			c.add(-1, -1, "dns.resolvers", "", "the resolver %+.60q is not allowed: %s", r, why)
		} else if r == "system" && len(p.DNS.Resolvers) > 1 {
			c.add(-1, -1, "dns.resolvers", "", `"system" stands alone`)
		}
	}
}

// wrongResolver takes "system", an address, or an address with a port. A
// resolver is the operator's choice, so it may be private or loopback.
func wrongResolver(s string) string {
	if s == "system" {
		return ""
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return `allowed: "system", an IP address, or one with a port`
		}
		ap = netip.AddrPortFrom(a, 53)
	}
	a := ap.Addr()
	switch {
	case a.Zone() != "", a.IsUnspecified(), a.IsMulticast(), a.Is4In6(), ap.Port() == 0:
		return `allowed: "system", an IP address, or one with a port`
	case ap.String() != s && a.String() != s:
		return "write " + ap.String()
	}
	return ""
}

const minIdle, maxIdle = time.Second, 24 * time.Hour

type limitRange struct {
	key      string
	min, max int64
	get      func(*Limits) int64
	set      func(*Limits, int64)
	size     bool // in bytes
}

func limitRanges() []limitRange {
	return []limitRange{
		{"conns", 1, 4096, func(l *Limits) int64 { return int64(l.Conns) }, func(l *Limits, n int64) { l.Conns = int(n) }, false},
		{"names", 1, 65536, func(l *Limits) int64 { return int64(l.Names) }, func(l *Limits, n int64) { l.Names = int(n) }, false},
		{"tx_bytes", 0, 1 << 50, func(l *Limits) int64 { return l.TxBytes }, func(l *Limits, n int64) { l.TxBytes = n }, true},
		{"rx_bytes", 0, 1 << 50, func(l *Limits) int64 { return l.RxBytes }, func(l *Limits, n int64) { l.RxBytes = n }, true},
		{"url_bytes", 64, 64 << 10, func(l *Limits) int64 { return int64(l.URLBytes) }, func(l *Limits, n int64) { l.URLBytes = int(n) }, true},
		{"header_bytes", 256, 256 << 10, func(l *Limits) int64 { return int64(l.HeaderBytes) }, func(l *Limits, n int64) { l.HeaderBytes = int(n) }, true},
	}
}

func (r Rate) wrong() string {
	switch {
	case r == Rate{}:
	case r.Count < 1 || r.Count > 1_000_000:
		return "allowed: 1 to 1000000 in a time"
	case r.Per != time.Second && r.Per != time.Minute && r.Per != time.Hour:
		return "allowed: a number by s, m or h, as in 60/m"
	}
	return ""
}

func (b Budget) wrong() string {
	if b.TxBytes < 0 || b.TxBytes > 1<<50 || b.RxBytes < 0 || b.RxBytes > 1<<50 {
		return "tx_bytes and rx_bytes: allowed: 1 to 1024t"
	}
	return b.Rate.wrong()
}

// wrongName wants words that can be shown anywhere.
func wrongName(s string) string {
	if s == "" || len(s) > maxName {
		return "allowed: 1 to 255 characters"
	}
	if strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_.[]:*") != "" {
		return "allowed: letters, digits and - _ ."
	}
	return ""
}

func (c *checker) host(i int, h *Host) {
	bad := func(key, fix, format string, args ...any) { c.add(i, -1, key, fix, format, args...) }
	name := h.Name
	if c.p.Short {
		name = strings.Replace(name, "/", "", 1) // before what is spoken
	}
	if why := wrongName(name); why != "" {
		bad("name", "", "the name %+.40q is not allowed; %s", h.Name, why)
	}
	if h.Host.IsZero() && !h.CIDR.IsValid() {
		bad("host", "", "it has neither host nor cidr")
	}
	c.hostName(i, h)
	c.cidr(i, h)
	if len(h.Ports) > maxPorts {
		bad("ports", "", "it has %d ports; allowed: at most %d", len(h.Ports), maxPorts)
	}
	if !slices.IsSorted(h.Ports) || len(slices.Compact(slices.Clone(h.Ports))) != len(h.Ports) || slices.Contains(h.Ports, 0) {
		bad("ports", "", "its ports are not in order, or one is there twice, or 0")
	}
	if why := h.Budget.wrong(); why != "" {
		bad("rate", "", "%s", why)
	}
	if h.Deny {
		if h.Mode != "" || h.SNIOptional || len(h.Rules) > 0 || h.Budget != (Budget{}) {
			bad("decide", "", "an entry that denies has host, cidr and ports only")
		}
		return
	}
	switch {
	case !slices.Contains([]Mode{Splice, HTTP, TCP}, h.Mode):
		bad("protocol", "", "its mode is %+.20q; allowed: splice, http, tcp", h.Mode)
	case len(h.Ports) == 0:
		bad("ports", "", "it has no port")
	case slices.Contains(h.Ports, 53):
		bad("ports", "", "port 53 cannot be allowed: whatever goes there is answered by the gateway's own resolver")
	}
	if h.SNIOptional && h.Mode != Splice {
		bad("sni", "", "sni is for tls: splice only")
	}
	if h.Mode == TCP && h.Host.Wild() {
		bad("host", "name the one host", "raw bytes go to one host: a wildcard cannot have protocol: tcp")
	}
	c.ofRequests(i, h)
}

func (c *checker) hostName(i int, h *Host) {
	if h.Host.IsZero() || h.Deny {
		return
	}
	name, base := h.Host.String(), h.Host.Base()
	why, private := hostname.Special(base)
	switch {
	case hostname.Metadata(base):
		c.add(i, -1, "host", "", "%s cannot be allowed: it is a cloud's metadata service", name)
	case why != "" && !private:
		c.add(i, -1, "host", "", "%s cannot be allowed: %s", name, why)
	case why != "" && h.Host.Wild():
		c.add(i, -1, "host", "name each host", "%s cannot be allowed: %s", name, why)
	case why != "" && !h.CIDR.IsValid() && c.p.Short:
		c.add(i, -1, "host", h.privateFix(), "%s cannot be allowed as it is: %s", name, why)
	case why != "" && !h.CIDR.IsValid():
		c.add(i, -1, "host", "add the network that it lies in, as in `cidr: 10.2.0.0/24, sink: internal`", "%s cannot be allowed as it is: %s", name, why)
	case h.Host.Wild() && publicSuffix(base) == icann:
		c.add(i, -1, "host", "name each domain", "%s is too wide: anybody can register a name below %s", name, base)
	}
}

func (c *checker) cidr(i int, h *Host) {
	p := h.CIDR
	if !p.IsValid() {
		if p != (netip.Prefix{}) {
			c.add(i, -1, "cidr", "", "it is no network")
		}
		return
	}
	switch why := special.MeetsInternal(p); {
	case h.Deny && !h.Host.IsZero():
		c.add(i, -1, "cidr", "make it two entries", "an entry that denies is for a host or for a network")
	case h.Deny && p.Addr().Is4In6():
		c.add(i, -1, "cidr", "write the IPv4 network", "the network %s is written as IPv4 in IPv6", p)
	case !h.Deny && why != "":
		c.add(i, -1, "cidr", "name a private network, as in 10.2.0.0/24", "the network %s cannot be allowed: %s", p, why)
	case p != p.Masked():
		c.add(i, -1, "cidr", "write "+p.Masked().String(), "the network %s has bits below its mask", p)
	}
	if h.Host.IsZero() && !h.Deny && h.Mode != TCP {
		c.add(i, -1, "protocol", "write protocol: tcp, or add a host", "an address without a name has no identity to check: such an entry is raw")
	}
}

func (c *checker) ofRequests(i int, h *Host) {
	if len(h.Rules) > 0 && h.Mode != HTTP {
		c.add(i, -1, "rules", "", "rules are for requests, which are read in plain HTTP only")
		return
	}
	if len(h.Rules) > MaxRules {
		c.add(i, -1, "rules", "", "it has %d rules; allowed: at most %d", len(h.Rules), MaxRules)
		return
	}
	if c.full {
		return
	}
	names := map[string]bool{}
	paths := 0
	for j := range h.Rules {
		r := &h.Rules[j]
		bad := func(key, fix, format string, args ...any) { c.add(i, j, key, fix, format, args...) }
		if why := wrongName(r.Name); why != "" {
			bad("name", "", "the name %+.40q is not allowed; %s", r.Name, why)
		}
		if names[r.Name] {
			bad("name", "", "another rule of the entry has the same name, %s", r.Name)
		}
		names[r.Name] = true
		if !slices.IsSorted(r.Methods) || len(slices.Compact(slices.Clone(r.Methods))) != len(r.Methods) {
			bad("methods", "", "its methods are not in order, or one is there twice")
		}
		for _, m := range r.Methods {
			if !slices.Contains(Methods(), m) {
				bad("methods", "", "the method %+.20q cannot be allowed; allowed: %s", m, strings.Join(Methods(), ", "))
			}
		}
		c.rules, c.paths = c.rules+1, c.paths+len(r.Paths)
		if c.rules > maxAllRules || c.paths > maxAllPaths {
			c.full = true
			c.add(i, -1, "rules", "", "the policy has more rules or paths up to here than it may; allowed: %d rules and %d paths in all", maxAllRules, maxAllPaths)
			return
		}
		if paths += len(r.Paths); paths > maxPaths {
			bad("paths", "", "the rules of the entry have %d paths up to here; allowed: at most %d", paths, maxPaths)
			return
		}
		if slices.Contains(r.Paths, Path{}) {
			bad("paths", "", "it has an empty path")
		}
		if r.Deny && r.Budget != (Budget{}) {
			bad("decide", "", "a rule that denies has methods and paths only")
		}
		if why := r.Budget.wrong(); why != "" {
			bad("rate", "", "%s", why)
		}
	}
}

// wrongGiven is for names that people give: brackets are for those that are
// counted.
func wrongGiven(s string) string {
	if why := wrongName(s); why != "" || strings.ContainsAny(s, "[]:*") || len(s) > 64 {
		return "allowed: 1 to 64 letters, digits and - _ ."
	}
	return ""
}
