package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sunaba-dev/sunaba/internal/hostname"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

func (l *loader) hosts(n *yaml.Node) {
	l.list(n, "hosts", MaxHosts, func(i int, e *yaml.Node) {
		l.places[spot{i, -1, ""}] = settings.At(e)
		h := l.host(i, e)
		h.line = settings.At(e).Line
		l.p.Hosts = append(l.p.Hosts, h)
	})
}

// entry is what a host entry says, before it is put together.
type entry struct {
	tls, protocol, sink, decide, sni string
	hasRules                         bool
}

func (l *loader) host(i int, n *yaml.Node) Host {
	h := Host{Name: fmt.Sprintf("hosts[%d]", i)}
	var e entry
	before := len(l.Errs)
	ok := l.section(n, h.Name, i, -1, map[string]key{
		"name": {read: l.named("name", &h.Name)},
		"host": {read: l.pattern("host", &h.Host)},
		"port": {read: func(n *yaml.Node) { l.port(n, "port", &h.Ports) }},
		"ports": {read: func(n *yaml.Node) {
			if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
				l.wrong(n, "ports", "it is empty; leave it out for port 443, or for every port of an entry that denies")
			}
			l.list(n, "ports", maxPorts, func(_ int, e *yaml.Node) { l.port(e, "ports", &h.Ports) })
		}},
		"tls":      {read: l.choice("tls", &e.tls, []string{"splice"}, map[string]string{"inspect": "; write `tls: splice` to let it pass unread"})},
		"protocol": {read: l.choice("protocol", &e.protocol, []string{"http", "tcp"}, map[string]string{"ssh": "; write `protocol: tcp` to let it pass unread", "postgres": "; write `protocol: tcp` to let it pass unread", "git": ""})},
		"cidr":     {read: func(n *yaml.Node) { l.cidr(n, &h.CIDR) }},
		"sink":     {read: l.choice("sink", &e.sink, []string{"internal"}, map[string]string{"external": "", "opaque": ""})},
		"sni":      {read: l.choice("sni", &e.sni, []string{"required", "optional"}, nil)},
		"decide":   {read: l.choice("decide", &e.decide, []string{"allow", "deny"}, map[string]string{"ask": ""})},
		"tx_bytes": {read: l.size("tx_bytes", &h.Budget.TxBytes)},
		"rx_bytes": {read: l.size("rx_bytes", &h.Budget.RxBytes)},
		"rate":     {read: l.rate("rate", &h.Budget.Rate)},
		"rules":    {read: func(n *yaml.Node) { e.hasRules = true; l.rules(i, n, &h) }},

		"methods": {read: func(n *yaml.Node) { l.misplaced(n, "methods") }},
		"paths":   {read: func(n *yaml.Node) { l.misplaced(n, "paths") }},

		"inject":      {planned: "secrets that the gateway puts in"},
		"data":        {planned: "labels of what the box has read"},
		"trust":       {planned: "labels of what the box has read"},
		"client_auth": {planned: "refusing the credentials of a client"},
		"client_cert": {planned: "certificates of a client"},
		"match":       {planned: "labels of a wildcard"},
		"response":    {planned: "changing what a host answers"},
		"capture":     {planned: "keeping secrets that a host answers with"},
		"taint":       {planned: "labels of what the box has read"},
		"dlp":         {planned: "scanning of what is sent"},
		"when":        {planned: "conditions"},
		"body":        {planned: "rules for what is sent"},
		"git":         {planned: "rules for git"},
	})
	if !ok || len(l.Errs) > before {
		return h
	}
	l.assemble(i, n, &h, e)
	return h
}

// assemble makes the mode of what an entry says.
func (l *loader) assemble(i int, n *yaml.Node, h *Host, e entry) {
	at := func(key string) settings.Place {
		if p, ok := l.places[spot{i, -1, key}]; ok {
			return p
		}
		return settings.At(n)
	}
	h.Deny = e.decide == "deny"
	h.SNIOptional = e.sni == "optional"
	slices.Sort(h.Ports)
	switch {
	case h.Host.IsZero() && !h.CIDR.IsValid():
		l.Failf(settings.At(n), "host", "cannot use %s: it has neither host nor cidr", h.Name)
		return
	case h.CIDR.IsValid() && e.sink == "" && !h.Deny:
		l.Failf(at("cidr"), "cidr", "cannot allow a private network unsaid; write `sink: internal` beside cidr: %s", h.CIDR)
		return
	case !h.CIDR.IsValid() && e.sink != "":
		l.Failf(at("sink"), "sink", "cannot use sink: internal without a network; write cidr: NETWORK beside it, as in 10.2.0.0/24")
		return
	case h.Deny && (e.tls != "" || e.protocol != "" || e.sni != "" || e.hasRules):
		l.Failf(at("decide"), "decide", "cannot use tls, protocol, sni or rules in an entry that denies")
		return
	case h.Deny:
		return
	}
	if len(h.Ports) == 0 {
		h.Ports = []uint16{443}
	}
	switch {
	case e.tls != "" && e.protocol != "":
		l.Failf(at("protocol"), "protocol", "cannot use tls and protocol in one entry: TLS is the protocol")
	case e.tls == "splice":
		h.Mode = Splice
		l.flatten(i, h)
	case e.protocol == "tcp":
		h.Mode = TCP
		l.flatten(i, h)
	case e.protocol == "http", slices.Equal(h.Ports, []uint16{80}):
		h.Mode = HTTP
	case slices.Equal(h.Ports, []uint16{443}):
		l.unsupported(n, "tls", "%s without tls: splice: its TLS would be inspected, which is not in this build; write `tls: splice` to let it pass unread, with its name checked and no rules for its requests", hostText(h))
	default:
		l.Failf(at("ports"), "ports", "cannot tell what %s speaks on these ports; write `tls: splice`, `protocol: http` or `protocol: tcp`", hostText(h))
	}
}

func hostText(h *Host) string {
	if h.Host.IsZero() {
		return h.CIDR.String()
	}
	return h.Host.String()
}

// flatten takes the one rule that an unread connection can have, a budget, for
// the entry's own.
func (l *loader) flatten(i int, h *Host) {
	if len(h.Rules) == 0 {
		return
	}
	r := h.Rules[0]
	if len(h.Rules) == 1 && !r.Deny && r.Methods == nil && r.Paths == nil && h.Budget == (Budget{}) {
		h.Budget, h.Rules = r.Budget, nil
		return
	}
	l.Failf(l.places[spot{i, -1, "rules"}], "rules", "cannot use rules for requests here: %s passes unread; allowed: tx_bytes, rx_bytes and rate, in the entry itself", hostText(h))
}

func (l *loader) rules(i int, n *yaml.Node, h *Host) {
	if before := l.count; n.Kind == yaml.SequenceNode && before <= maxAllRules {
		if l.count += len(n.Content); l.count > maxAllRules {
			l.Failf(settings.At(n), "rules", "cannot read more than %d rules in all", maxAllRules)
		}
	}
	if l.count > maxAllRules {
		return // told once
	}
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 { // somebody has taken out the last one
		l.wrong(n, "rules", "it is empty; leave it out to allow all requests, or take the entry out")
	}
	l.list(n, "rules", MaxRules, func(j int, e *yaml.Node) {
		l.places[spot{i, j, ""}] = settings.At(e)
		r := Rule{Name: fmt.Sprintf("rules[%d]", j), line: settings.At(e).Line}
		decide := ""
		l.section(e, r.Name, i, j, map[string]key{
			"name":     {read: l.named("name", &r.Name)},
			"methods":  {read: func(n *yaml.Node) { l.methods(n, &r.Methods) }},
			"paths":    {read: func(n *yaml.Node) { l.paths(n, &r.Paths) }},
			"decide":   {read: l.choice("decide", &decide, []string{"allow", "deny"}, map[string]string{"ask": ""})},
			"rate":     {read: l.rate("rate", &r.Budget.Rate)},
			"tx_bytes": {read: l.size("tx_bytes", &r.Budget.TxBytes)},
			"rx_bytes": {read: l.size("rx_bytes", &r.Budget.RxBytes)},

			"body":                {planned: "rules for what is sent"},
			"when":                {planned: "conditions"},
			"query":               {planned: "rules for what follows the path"},
			"headers":             {planned: "rules for headers"},
			"git":                 {planned: "rules for git"},
			"repos":               {planned: "rules for git"},
			"refs":                {planned: "rules for git"},
			"inject":              {planned: "secrets that the gateway puts in"},
			"capture":             {planned: "keeping secrets that a host answers with"},
			"response":            {planned: "changing what a host answers"},
			"dlp":                 {planned: "scanning of what is sent"},
			"graphql":             {planned: "rules for GraphQL"},
			"grpc":                {planned: "rules for gRPC"},
			"allow_encoded_slash": {planned: "encoded slashes in paths"},
		})
		r.Deny = decide == "deny"
		h.Rules = append(h.Rules, r)
	})
}

func (l *loader) misplaced(n *yaml.Node, key string) {
	l.Failf(settings.At(n), key, "cannot use %s beside host; write rules: [ { %s: ... } ]", key, key)
}

// named reads a name that a person gives; brackets are for those that are
// counted.
func (l *loader) named(key string, to *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := l.scalar(n, key)
		if !ok {
			return
		}
		if why := wrongGiven(s); why != "" {
			l.wrong(n, key, why)
			return
		}
		*to = s
	}
}

func (l *loader) pattern(key string, to *hostname.Pattern) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := l.scalar(n, key)
		if !ok {
			return
		}
		if why := misreadHost(s); why != "" {
			l.wrong(n, key, why)
			return
		}
		p, err := hostname.ParsePattern(s)
		var e *hostname.Error
		if errors.As(err, &e) {
			why := e.Why
			if e.Fix != "" {
				why += "; write " + e.Fix
			}
			l.wrong(n, key, why)
			return
		}
		*to = p
	}
}

func (l *loader) port(n *yaml.Node, key string, to *[]uint16) {
	s, ok := l.scalar(n, key)
	if !ok {
		return
	}
	p, err := parsePort(s)
	switch {
	case err != nil:
		l.wrong(n, key, "allowed: 1 to 65535")
	case slices.Contains(*to, p):
		l.wrong(n, key, "it is there twice")
	default:
		*to = append(*to, p)
	}
}

func (l *loader) cidr(n *yaml.Node, to *netip.Prefix) {
	s, ok := l.scalar(n, "cidr")
	if !ok {
		return
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		why := "allowed: a network, as in 10.2.0.0/24"
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			why += "; write " + netip.PrefixFrom(a, a.BitLen()).String()
		}
		l.wrong(n, "cidr", why)
		return
	}
	*to = p
}

func (l *loader) methods(n *yaml.Node, to *[]string) {
	all := false
	*to = []string{}
	l.list(n, "methods", len(Methods())+1, func(_ int, e *yaml.Node) {
		s, ok := l.scalar(e, "methods")
		switch {
		case !ok:
		case s == "*":
			all = true
		case !slices.Contains(Methods(), s):
			why := fmt.Sprintf(`allowed: "*", or of %v`, Methods())
			if up := strings.ToUpper(s); slices.Contains(Methods(), up) {
				why = "write " + up
			}
			l.wrong(e, "methods", why)
		case slices.Contains(*to, s):
			l.wrong(e, "methods", "it is there twice")
		default:
			*to = append(*to, s)
		}
	})
	switch {
	case all && len(*to) > 0:
		l.wrong(n, "methods", `"*" stands alone`)
	case all:
		*to = nil
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		l.wrong(n, "methods", `it is empty; allowed: "*" for all`)
	}
	slices.Sort(*to)
}

func (l *loader) paths(n *yaml.Node, to *[]Path) {
	l.list(n, "paths", maxPaths, func(_ int, e *yaml.Node) {
		s, ok := l.scalar(e, "paths")
		if !ok {
			return
		}
		p, err := ParsePath(s)
		switch {
		case err != nil:
			l.wrong(e, "paths", err.Error())
		case slices.Contains(*to, p):
			l.wrong(e, "paths", "it is there twice")
		default:
			*to = append(*to, p)
		}
	})
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		l.wrong(n, "paths", `it is empty; allowed: "/**" for all`)
	}
}
