package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Reach is something that one policy lets a box do and another one does not.
type Reach struct {
	Added   bool             `json:"added"`
	Kind    string           `json:"kind"`             // host, request, denial, limit
	Host    hostname.Pattern `json:"host,omitzero"`    // zero: by address, or for limits
	CIDR    netip.Prefix     `json:"cidr,omitzero"`    // in which private network
	Port    uint16           `json:"port,omitzero"`    // 0: of a denial, every port
	Mode    Mode             `json:"mode,omitzero"`    //
	Methods []string         `json:"methods,omitzero"` // of a request or a denied request
	Path    Path             `json:"path,omitzero"`
	Text    string           `json:"text"` // one line for people
}

// Diff tells what a change adds to the reach of a box, and then what it takes
// away. It may tell too much where several entries together allow what one did,
// and never too little: a connection or request that one policy allows and the
// other does not lies in something that is told.
func Diff(before, after *Policy) []Reach {
	out := added(before, after)
	for _, r := range added(after, before) {
		r.Added = false
		out = append(out, r)
	}
	for i := range out {
		out[i].Text = out[i].describe()
	}
	return append(out, limitDiff(before, after)...)
}

func added(before, after *Policy) []Reach {
	var out []Reach
	for i := range after.Hosts {
		h := &after.Hosts[i]
		if h.Deny {
			continue
		}
		var olds []*Host
		for j := range before.Hosts {
			if o := &before.Hosts[j]; !o.Deny && o.coversNames(h) && o.opens(h) {
				olds = append(olds, o)
			}
		}
		for _, port := range h.Ports {
			out = append(out, addedOn(olds, h, port)...)
		}
	}
	for i := range before.Hosts {
		d := &before.Hosts[i]
		switch {
		case d.Deny:
			out = append(out, liftedHost(after, d)...)
		case d.Mode == HTTP:
			for j := range d.Rules {
				if d.Rules[j].Deny {
					out = append(out, liftedRule(after, d, &d.Rules[j])...)
				}
			}
		}
	}
	return out
}

// addedOn tells what an entry allows on a port and none of olds does, which are
// for all of its names. Denials are left aside here: see liftedHost and
// liftedRule.
func addedOn(olds []*Host, h *Host, port uint16) []Reach {
	olds = slices.DeleteFunc(slices.Clone(olds), func(o *Host) bool { return !o.onPort(port) })
	r := Reach{Added: true, Kind: "host", Host: h.Host, CIDR: h.CIDR, Port: port, Mode: h.Mode}
	if h.Mode != HTTP {
		if len(olds) == 0 {
			return []Reach{r}
		}
		return nil
	}
	var out []Reach
	for _, rule := range h.allowing() {
		for _, path := range rule.paths() {
			methods := slices.DeleteFunc(slices.Clone(rule.methods()), func(m string) bool {
				return slices.ContainsFunc(olds, func(o *Host) bool { return o.allows(m, path) })
			})
			if len(methods) == 0 {
				continue
			}
			a := r
			if len(olds) > 0 {
				a.Kind = "request"
			}
			a.Methods, a.Path = methods, path
			out = append(out, a)
		}
	}
	return out
}

// opens reports whether o lets through, beside names and ports, what h does.
func (o *Host) opens(h *Host) bool {
	if o.Mode != h.Mode || h.SNIOptional && !o.SNIOptional {
		return false
	}
	if h.Host.IsZero() || !h.CIDR.IsValid() && !o.CIDR.IsValid() {
		return true
	}
	return h.CIDR.IsValid() && o.CIDR.IsValid() && o.CIDR.Bits() <= h.CIDR.Bits() && o.CIDR.Contains(h.CIDR.Addr())
}

// allowing lists the rules that allow; an entry without rules has one for all.
func (h *Host) allowing() []*Rule {
	if len(h.Rules) == 0 {
		return []*Rule{{}}
	}
	var out []*Rule
	for i := range h.Rules {
		if !h.Rules[i].Deny {
			out = append(out, &h.Rules[i])
		}
	}
	return out
}

// allows reports whether one rule allows a method on all of a path pattern.
func (h *Host) allows(method string, path Path) bool {
	return slices.ContainsFunc(h.allowing(), func(r *Rule) bool {
		return r.onMethod(method) && slices.ContainsFunc(r.paths(), func(p Path) bool { return p.Covers(path) })
	})
}

// liftedHost tells that an entry no longer denies, where after allows something
// of it.
func liftedHost(after *Policy, d *Host) []Reach {
	ports := d.Ports
	if len(ports) == 0 {
		ports = []uint16{0}
	}
	var out []Reach
	for _, port := range ports {
		one := *d
		one.Ports = nil
		if port != 0 {
			one.Ports = []uint16{port}
		}
		kept := slices.ContainsFunc(after.Hosts, func(n Host) bool { return n.Deny && n.covers(&one) })
		open := slices.ContainsFunc(after.Hosts, func(n Host) bool {
			// A host's addresses may lie anywhere, or in its own network.
			byName := d.Host.IsZero() && !n.Host.IsZero() && (!n.CIDR.IsValid() || n.CIDR.Overlaps(d.CIDR)) && (len(one.Ports) == 0 || slices.ContainsFunc(n.Ports, one.onPort))
			return !n.Deny && (n.meets(&one) || byName)
		})
		if !kept && open {
			out = append(out, Reach{Added: true, Kind: "denial", Host: d.Host, CIDR: d.CIDR, Port: port})
		}
	}
	return out
}

// liftedRule tells that a rule no longer denies, where after allows something
// of it.
func liftedRule(after *Policy, h *Host, d *Rule) []Reach {
	var out []Reach
	for _, port := range h.Ports {
		one := *h
		one.Ports = []uint16{port}
		for _, path := range d.paths() {
			denied := Rule{Methods: d.Methods, Paths: []Path{path}}
			for i := range after.Hosts {
				n := &after.Hosts[i]
				if n.Deny || n.Mode != HTTP || !n.meets(&one) {
					continue
				}
				kept := slices.ContainsFunc(n.Rules, func(r Rule) bool { return r.Deny && r.covers(&denied) })
				open := slices.ContainsFunc(n.allowing(), func(r *Rule) bool { return r.meetsWide(&denied) })
				if !kept && open {
					out = append(out, Reach{Added: true, Kind: "denial", Host: h.Host, CIDR: h.CIDR, Port: port, Mode: HTTP, Methods: d.methods(), Path: path})
					break
				}
			}
		}
	}
	return out
}

// meetsWide is meets for a rule that denies, whose paths are taken widely.
func (r *Rule) meetsWide(d *Rule) bool {
	return slices.ContainsFunc(r.methods(), d.onMethod) && somePath(r, d, func(p, q Path) bool {
		denied := readings(q.text)[0]
		return slices.ContainsFunc(readings(p.text), func(s string) bool { return meets(s, denied) })
	})
}

func (r Reach) describe() string {
	what := r.Host.String()
	switch {
	case r.Host.IsZero():
		what = "addresses of " + r.CIDR.String()
	case r.CIDR.IsValid():
		what += " in " + r.CIDR.String()
	}
	if r.Port != 0 {
		what += fmt.Sprintf(" port %d", r.Port)
	}
	if len(r.Methods) > 0 {
		methods := strings.Join(r.Methods, ", ")
		if len(r.Methods) == len(Methods()) {
			methods = "every method"
		}
		what += ": " + methods + " on " + r.Path.String()
	}
	verb := "reaches"
	switch {
	case r.Kind == "denial" && r.Added:
		verb = "no longer denies"
	case r.Kind == "denial":
		verb = "now denies"
	case !r.Added:
		verb = "no longer reaches"
	}
	notes := []string{}
	switch {
	case r.Kind == "denial":
		return verb + " " + what
	case r.Mode == Splice:
		notes = append(notes, "TLS, unread")
	case r.Mode == TCP:
		notes = append(notes, "raw, unread")
	case r.Mode == HTTP:
		notes = append(notes, "plain HTTP")
	}
	if r.CIDR.IsValid() {
		notes = append(notes, "private network")
	}
	if len(notes) == 0 {
		return verb + " " + what
	}
	return verb + " " + what + " (" + strings.Join(notes, "; ") + ")"
}

// limitDiff tells of budgets, and of how names are resolved.
func limitDiff(before, after *Policy) []Reach {
	var out []Reach
	tell := func(more bool, format string, args ...any) {
		out = append(out, Reach{Added: more, Kind: "limit", Text: fmt.Sprintf(format, args...)})
	}
	for _, r := range limitRanges() {
		a, b := r.get(&before.Limits), r.get(&after.Limits)
		if a != b {
			tell(b > a && a != 0 || b == 0, "limit %s: %s, was %s", r.key, amount(b), amount(a))
		}
	}
	if a, b := before.Limits.Rate, after.Limits.Rate; a != b {
		tell(faster(b, a), "limit rate: %s, was %s", rateText(b), rateText(a))
	}
	if a, b := cmp.Or(before.Limits.Idle, DefaultIdle), cmp.Or(after.Limits.Idle, DefaultIdle); a != b {
		tell(b > a, "limit idle: %s, was %s", b, a)
	}
	if a, b := strings.Join(before.DNS.Resolvers, " "), strings.Join(after.DNS.Resolvers, " "); a != b {
		tell(true, "names are resolved by %s, not by %s", b, a)
	}
	for i := range after.Hosts {
		h := &after.Hosts[i]
		for j := range before.Hosts {
			o := &before.Hosts[j]
			if h.Deny || o.Deny || !h.meets(o) {
				continue
			}
			budgetDiff(tell, hostText(h), o.Budget, h.Budget)
			for k := range h.Rules {
				for m := range o.Rules {
					if a, b := &o.Rules[m], &h.Rules[k]; !a.Deny && !b.Deny && a.meets(b) {
						budgetDiff(tell, hostText(h)+" rule "+b.Name, a.Budget, b.Budget)
					}
				}
			}
		}
	}
	return out
}

func budgetDiff(tell func(bool, string, ...any), what string, a, b Budget) {
	for _, n := range []struct {
		key  string
		a, b int64
	}{{"tx_bytes", a.TxBytes, b.TxBytes}, {"rx_bytes", a.RxBytes, b.RxBytes}} {
		if n.a != n.b {
			tell(n.b > n.a && n.a != 0 || n.b == 0, "%s %s: %s, was %s", what, n.key, amount(n.b), amount(n.a))
		}
	}
	if a.Rate != b.Rate {
		tell(faster(b.Rate, a.Rate), "%s rate: %s, was %s", what, rateText(b.Rate), rateText(a.Rate))
	}
}

// faster reports whether a lets more through than b.
func faster(a, b Rate) bool {
	if a.Per == 0 || b.Per == 0 {
		return a.Per == 0
	}
	return float64(a.Count)/a.Per.Seconds() > float64(b.Count)/b.Per.Seconds() || a.Count > b.Count
}

func rateText(r Rate) string {
	if r.Per == 0 {
		return "no limit"
	}
	return r.String()
}

func amount(n int64) string {
	if n == 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}
