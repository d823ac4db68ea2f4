package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// networkCall are the flags of box network.
type networkCall struct {
	allow   []string
	also    []string
	policy  string // a file
	nothing bool
}

func networkFlags(fs *flag.FlagSet, b *boxCall) {
	fs.Func("allow", "", func(s string) error { b.network.allow = append(b.network.allow, s); return nil })
	fs.Func("also", "", func(s string) error { b.network.also = append(b.network.also, s); return nil })
	fs.StringVar(&b.network.policy, "network-policy", "", "")
	fs.BoolVar(&b.network.nothing, "allow-nothing", false, "")
}

// networkTold is what box network answers with in JSON.
type networkTold struct {
	Mode    box.NetMode     `json:"mode"`
	Up      bool            `json:"up"`
	Network json.RawMessage `json:"network"` // as a request takes it
	Rules   json.RawMessage `json:"rules"`
	Traffic box.Traffic     `json:"traffic"`
}

// boxNetwork tells of a box's network, after putting other rules in force if there
// are any.
func boxNetwork(ctx context.Context, b *boxCall) (int, error) {
	id, err := b.id(0)
	if err != nil {
		return 0, err
	}
	var i box.NetworkInfo
	if len(b.network.also) > 0 {
		if i, err = b.c.Network(ctx, box.Caller{}, id); err != nil {
			return 0, err
		}
	}
	wanted, err := b.network.wanted(i.Rules)
	if err != nil {
		return 0, err
	}
	if wanted == nil {
		i, err = b.c.Network(ctx, box.Caller{}, id)
	} else {
		i, err = b.c.SetNetwork(ctx, box.Caller{}, id, wanted)
	}
	if err != nil {
		return 0, err
	}
	told := networkTold{i.Mode, i.Up, i.Asked, i.Rules, i.Traffic}
	for _, raw := range []*json.RawMessage{&told.Network, &told.Rules} {
		if len(*raw) == 0 {
			*raw = json.RawMessage("null")
		}
	}
	return 0, b.show(told, func() {
		if i.Mode == box.NetNone {
			fmt.Println("no network")
			return
		}
		up := "up"
		if !i.Up {
			up = "not up"
		}
		t := i.Traffic
		fmt.Printf("network %s, rules of generation %d, %d connections (%d open), %d bytes sent, %d received\n", up, t.Generation, t.Connections, t.Open, t.Sent, t.Received)
		p, err := rules.Parse(i.Rules)
		if err == nil {
			reach := reachWords(p)
			if len(reach) == 0 {
				reach = []string{"reaches nothing"}
			}
			fmt.Println(strings.Join(reach, "\n"))
		}
		for _, line := range denialWords(t.Denied, "--also", p) {
			fmt.Println(line)
		}
	})
}

// reachWords say what rules let a box reach, and what of it they deny, a line each.
func reachWords(p *rules.Policy) []string {
	var out []string
	for _, r := range rules.Diff(new(rules.Policy), p) {
		if r.Added && r.Kind != "limit" {
			out = append(out, oneLine(r.Text))
		}
	}
	for _, h := range p.Hosts {
		what := h.Host.String()
		if h.Host.IsZero() {
			what = "addresses of " + h.CIDR.String()
		}
		for _, port := range h.Ports {
			if h.Deny {
				out = append(out, fmt.Sprintf("denies %s port %d", what, port))
			}
		}
		if h.Deny && len(h.Ports) == 0 {
			out = append(out, "denies "+what)
		}
		for _, r := range h.Rules {
			if r.Deny {
				out = append(out, oneLine(fmt.Sprintf("denies %s: the rule %s/%s", what, h.Name, r.Name)))
			}
		}
	}
	return out
}

// wanted is the key network that the flags ask for; nil if they ask for no change.
// Now are the rules in force, to which --also adds.
func (n networkCall) wanted(now json.RawMessage) (json.RawMessage, error) {
	given := 0
	for _, g := range []bool{n.nothing, len(n.allow) > 0, len(n.also) > 0, n.policy != ""} {
		if g {
			given++
		}
	}
	network := map[string]any{"mode": box.NetAllowlist}
	switch {
	case given == 0:
		return nil, nil
	case given > 1:
		return nil, box.Errorf(box.Invalid, "set network", "cannot use more than one of --allow, --also, --allow-nothing and --network-policy: but for --also, each is all that the box may reach")
	case len(n.also) > 0:
		p := &rules.Policy{Short: true} // of a box without a network, which the daemon refuses
		if len(now) > 0 {
			var err error
			if p, err = rules.Parse(now); err != nil {
				return nil, box.Errorf(box.Fault, "set network", "cannot read the rules of the box: %w", err)
			}
		}
		if !p.Short {
			return nil, box.Errorf(box.Invalid, "set network", "cannot add to the rules of the box: they are no list of host:port").
				WithHint("add to the policy file, and give all of it with --network-policy; --allow replaces it by a list")
		}
		list := []string{}
		for _, h := range p.Hosts {
			list = append(list, h.Name)
		}
		network["allowlist"] = append(list, n.also...)
	case n.policy != "":
		rules, err := sendablePolicy(n.policy)
		if err != nil {
			return nil, err
		}
		network["rules"] = rules
	default:
		network["allowlist"] = append([]string{}, n.allow...)
	}
	return json.Marshal(network)
}
