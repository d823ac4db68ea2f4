package main

import (
	"net/netip"
	"slices"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/egress/special"
)

// networkBounds is what the rules of requests may reach and use up beside public
// hosts. The zero value is for callers who do not own this host: nothing.
type networkBounds struct {
	own      bool           // whoever runs this process is who asks: no bound
	networks []netip.Prefix // private networks that rules may name
}

// check refuses what is the operator's to say: private networks, which servers
// are asked for names, and more of the gateway than a box has by default.
func (b networkBounds) check(p *rules.Policy) error {
	if b.own {
		return nil
	}
	const op = "read request"
	for _, h := range p.Hosts {
		inside := func(n netip.Prefix) bool { return n.Bits() <= h.CIDR.Bits() && n.Contains(h.CIDR.Addr()) }
		if !h.Deny && h.CIDR.IsValid() && !slices.ContainsFunc(b.networks, inside) {
			return box.Errorf(box.Denied, op, "cannot use the entry %s in a request: the network %s is private, and its operator's to open", h.Name, h.CIDR).
				WithHint("`sunaba serve --allow-network %s` lets requests name it", h.CIDR)
		}
	}
	if !slices.Equal(p.DNS.Resolvers, []string{"system"}) {
		return box.Errorf(box.Denied, op, "cannot use dns.resolvers in a request: which servers are asked is its operator's to say").
			WithHint("`sunaba serve --resolver ADDRESS` names them")
	}
	l, most := p.Limits, rules.DefaultLimits()
	for _, v := range []struct {
		key       string
		got, most int
	}{{"conns", l.Conns, most.Conns}, {"names", l.Names, most.Names}, {"url_bytes", l.URLBytes, most.URLBytes}, {"header_bytes", l.HeaderBytes, most.HeaderBytes}} {
		if v.got > v.most {
			return box.Errorf(box.Denied, op, "cannot set limits.%s to %d in a request: allowed are at most %d", v.key, v.got, v.most)
		}
	}
	if l.Idle > rules.RequestIdle {
		return box.Errorf(box.Denied, op, "cannot set limits.idle to %s in a request: allowed are at most %s", l.Idle, rules.RequestIdle)
	}
	return nil
}

// parseNetwork reads one of --allow-network.
func parseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, box.Errorf(box.Invalid, "serve", "cannot allow network %q: it is none; write one as 10.2.0.0/24", s)
	}
	if why := special.MeetsInternal(p); why != "" {
		return p, box.Errorf(box.Invalid, "serve", "cannot allow network %s: %s", p, why)
	}
	return p.Masked(), nil
}
