package rules

import (
	"reflect"
	"slices"
)

// overlaps refuses what could give one question two answers, and entries and
// rules that nothing reaches.
func (c *checker) overlaps() {
	hosts := c.p.Hosts
	for i := range hosts {
		h := &hosts[i]
		for j := range i {
			o := &hosts[j]
			if h.Deny || o.Deny || !h.meets(o) {
				continue
			}
			if !h.means(o) {
				c.add(i, -1, "host", "make them one entry, or let them have no name and port in common",
					"it overlaps with the entry %s%s, which says something else of the same connections", o.Name, o.at())
			} else if o.covers(h) {
				c.warn(i, -1, "host", "take it out", "the entry %s%s allows all of it already", o.Name, o.at())
			} else if h.covers(o) {
				c.warn(j, -1, "host", "take it out", "the entry %s%s allows all of it already", h.Name, h.at())
			}
		}
		if d := c.dead(h); d != nil {
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
	return len(h.Ports) == 0 || len(o.Ports) == 0 || slices.ContainsFunc(h.Ports, o.onPort)
}

// covers reports whether each connection of o is one of h's.
func (h *Host) covers(o *Host) bool {
	if !h.coversNames(o) {
		return false
	}
	if len(o.Ports) == 0 {
		return len(h.Ports) == 0
	}
	return !slices.ContainsFunc(o.Ports, func(p uint16) bool { return !h.onPort(p) })
}

// coversNames leaves ports aside.
func (h *Host) coversNames(o *Host) bool {
	if h.Host.IsZero() || o.Host.IsZero() {
		return h.Host.IsZero() && o.Host.IsZero() && h.CIDR.Bits() <= o.CIDR.Bits() && h.CIDR.Contains(o.CIDR.Addr())
	}
	return h.Host.Covers(o.Host)
}

// means reports whether two entries say the same of a connection.
func (h *Host) means(o *Host) bool {
	if h.Mode != o.Mode || h.CIDR != o.CIDR && !h.Host.IsZero() || h.SNIOptional != o.SNIOptional || h.Budget != o.Budget || len(h.Rules) != len(o.Rules) {
		return false
	}
	for i := range h.Rules {
		a, b := h.Rules[i], o.Rules[i]
		a.line, b.line = 0, 0
		if !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return true
}

// dead returns an entry that denies all of h, port by port.
func (c *checker) dead(h *Host) *Host {
	if h.Deny {
		return nil
	}
	var by *Host
	for _, port := range h.Ports {
		one := *h
		one.Ports = []uint16{port}
		k := slices.IndexFunc(c.p.Hosts, func(d Host) bool { return d.Deny && (d.covers(&one) || d.shuts(&one)) })
		if k < 0 {
			return nil
		}
		by = &c.p.Hosts[k]
	}
	return by
}

// shuts reports whether d denies, by address, the whole network that a host is
// allowed in.
func (d *Host) shuts(h *Host) bool {
	if !d.Host.IsZero() || h.Host.IsZero() || !h.CIDR.IsValid() {
		return false
	}
	return d.CIDR.Bits() <= h.CIDR.Bits() && d.CIDR.Contains(h.CIDR.Addr()) && !slices.ContainsFunc(h.Ports, func(p uint16) bool { return !d.onPort(p) })
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
		for k := range h.Rules {
			o := &h.Rules[k]
			if o.Deny && o.covers(r) {
				c.add(i, j, "paths", "take one of them out", "nothing reaches the rule %s: the rule %s%s denies all of it", r.Name, o.Name, at(o.line))
				break
			}
			if k >= j || o.Deny || !r.meets(o) {
				continue
			}
			if r.Budget != o.Budget {
				c.add(i, j, "paths", "let them have no method and path in common, or the same limits",
					"the rule %s overlaps with the rule %s%s, which has other limits", r.Name, o.Name, at(o.line))
			} else if o.covers(r) {
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
	return slices.ContainsFunc(r.methods(), func(m string) bool { return o.onMethod(m) }) &&
		slices.ContainsFunc(r.paths(), func(p Path) bool { return slices.ContainsFunc(o.paths(), p.Meets) })
}

// covers reports whether each request of o is one of r's. It may say no where
// several paths of r together cover one of o's.
func (r *Rule) covers(o *Rule) bool {
	return !slices.ContainsFunc(o.methods(), func(m string) bool { return !r.onMethod(m) }) &&
		!slices.ContainsFunc(o.paths(), func(p Path) bool {
			return !slices.ContainsFunc(r.paths(), func(q Path) bool { return q.Covers(p) })
		})
}
