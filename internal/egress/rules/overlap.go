package rules

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// overlaps refuses what could give one question two answers, and entries and
// rules that nothing reaches. Of each entry and rule the first of these is told:
// a text is short, and what could be said of its pairs is not.
func (c *checker) overlaps() {
	hosts := c.p.Hosts
	means := make([]string, len(hosts))
	var denying []*Host
	for i := range hosts {
		if means[i] = hosts[i].meaning(); hosts[i].Deny {
			denying = append(denying, &hosts[i])
		}
	}
	spare := make([]bool, len(hosts)) // told to be
	for i := range hosts {
		h := &hosts[i]
		for j := range i {
			o := &hosts[j]
			if h.Deny || o.Deny || !h.meets(o) {
				continue
			}
			if means[i] != means[j] || h.CIDR != o.CIDR && !h.Host.IsZero() {
				c.add(i, -1, "host", "make them one entry, or let them have no name and port in common",
					"it overlaps with the entry %s%s, which says something else of the same connections", o.Name, o.at())
				break
			}
			switch {
			case !spare[i] && o.covers(h):
				spare[i] = true
				c.warn(i, -1, "host", "take it out", "the entry %s%s allows all of it already", o.Name, o.at())
			case !spare[i] && !spare[j] && h.covers(o):
				spare[j] = true
				c.warn(j, -1, "host", "take it out", "the entry %s%s allows all of it already", h.Name, h.at())
			}
		}
		if d := h.deadBy(denying); d != nil {
			c.add(i, -1, "host", "take one of them out", "nothing reaches it: the entry %s%s denies all of it", d.Name, d.at())
		}
		c.ruleOverlaps(i, h)
	}
}

func (c *checker) warn(host, rule int, key, fix, format string, args ...any) {
	c.add(host, rule, key, fix, format, args...)
	c.out[len(c.out)-1].warn = true
}

// meets reports whether some connection belongs to both entries.
func (h *Host) meets(o *Host) bool {
	if h.Host.IsZero() != o.Host.IsZero() {
		return false // by name, or by address: a connection is one of both
	}
	if h.Host.IsZero() && !h.CIDR.Overlaps(o.CIDR) || !h.Host.IsZero() && !h.Host.Meets(o.Host) {
		return false
	}
	return len(h.Ports) == 0 || len(o.Ports) == 0 || common(h.Ports, o.Ports)
}

// common reports whether two sorted lists have an element in common.
func common[T cmp.Ordered](a, b []T) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			return true
		case a[0] < b[0]:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return false
}

// within reports whether each element of a sorted list is in another one.
func within[T cmp.Ordered](a, b []T) bool {
	for len(a) > 0 && len(b) > 0 && len(a) <= len(b) {
		if a[0] == b[0] {
			a = a[1:]
		}
		b = b[1:]
	}
	return len(a) == 0
}

// covers reports whether each connection of o is one of h's.
func (h *Host) covers(o *Host) bool {
	return h.coversNames(o) && (len(h.Ports) == 0 || len(o.Ports) > 0 && within(o.Ports, h.Ports))
}

// coversNames leaves ports aside.
func (h *Host) coversNames(o *Host) bool {
	if h.Host.IsZero() || o.Host.IsZero() {
		return h.Host.IsZero() && o.Host.IsZero() && h.CIDR.Bits() <= o.CIDR.Bits() && h.CIDR.Contains(o.CIDR.Addr())
	}
	return h.Host.Covers(o.Host)
}

// meaning is a text that is equal for entries which say the same of a connection,
// but for their names, ports and networks.
func (h *Host) meaning() string {
	if h.Deny {
		return ""
	}
	b, err := json.Marshal([]any{h.Mode, h.SNIOptional, h.Budget, h.Rules})
	if err != nil {
		panic(fmt.Sprintf("cannot write an entry: %v", err)) // plain values only
	}
	return string(b)
}

// deadBy returns one of the entries that deny all of h together, port by port.
func (h *Host) deadBy(denying []*Host) *Host {
	if h.Deny {
		return nil
	}
	left := slices.Clone(h.Ports)
	for _, d := range denying {
		if !d.coversNames(h) && !d.shuts(h) || len(d.Ports) > 0 && !common(left, d.Ports) {
			continue
		}
		if left = slices.DeleteFunc(left, d.onPort); len(left) == 0 {
			return d
		}
	}
	return nil
}

// shuts reports whether d denies, by address and ports aside, the whole network
// that a host is allowed in.
func (d *Host) shuts(h *Host) bool {
	return d.Host.IsZero() && !h.Host.IsZero() && h.CIDR.IsValid() && d.CIDR.Bits() <= h.CIDR.Bits() && d.CIDR.Contains(h.CIDR.Addr())
}

func (c *checker) ruleOverlaps(i int, h *Host) {
	if len(h.Rules) > 0 && !h.Deny && len(h.allowing()) == 0 {
		c.add(i, -1, "rules", `to allow the rest, add { methods: ["*"] }`, "nothing reaches it: all its rules deny")
	}
	for j := range h.Rules {
		r := &h.Rules[j]
		if r.Deny {
			continue
		}
		if k := slices.IndexFunc(h.Rules, func(o Rule) bool { return o.Deny && o.covers(r) }); k >= 0 {
			o := &h.Rules[k]
			c.add(i, j, "paths", "take one of them out", "nothing reaches the rule %s: the rule %s%s denies all of it", r.Name, o.Name, at(o.line))
		}
		spare := false
		for k := range j {
			o := &h.Rules[k]
			if o.Deny || spare && r.Budget == o.Budget || !r.meets(o) {
				continue
			}
			if r.Budget != o.Budget {
				c.add(i, j, "paths", "let them have no method and path in common, or the same limits",
					"the rule %s overlaps with the rule %s%s, which has other limits", r.Name, o.Name, at(o.line))
				break
			}
			if o.covers(r) {
				spare = true
				c.warn(i, j, "paths", "take it out", "the rule %s%s allows all that %s does", o.Name, at(o.line), r.Name)
			}
		}
	}
}

func (r *Rule) methods() []string {
	if len(r.Methods) == 0 {
		return Methods()
	}
	return r.Methods
}

func (r *Rule) paths() []Path {
	if len(r.Paths) == 0 {
		return []Path{{"/**"}}
	}
	return r.Paths
}

// meets reports whether some request belongs to both rules.
func (r *Rule) meets(o *Rule) bool {
	return (len(r.Methods) == 0 || len(o.Methods) == 0 || common(r.Methods, o.Methods)) && somePath(r, o, Path.Meets)
}

// covers reports whether each request of o is one of r's. It may say no where
// several paths of r together cover one of o's.
func (r *Rule) covers(o *Rule) bool {
	if len(r.Methods) > 0 && !within(o.methods(), r.Methods) {
		return false
	}
	if len(o.Paths) == 0 {
		return len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, Path.all)
	}
	return len(r.Paths) == 0 || !slices.ContainsFunc(o.Paths, func(p Path) bool {
		return !slices.ContainsFunc(r.Paths, func(q Path) bool { return q.Covers(p) })
	})
}

// somePath reports whether f holds for a path of each rule; one that has none is
// for all.
func somePath(r, o *Rule, f func(p, q Path) bool) bool {
	return len(r.Paths) == 0 || len(o.Paths) == 0 ||
		slices.ContainsFunc(r.Paths, func(p Path) bool { return slices.ContainsFunc(o.Paths, func(q Path) bool { return f(p, q) }) })
}
