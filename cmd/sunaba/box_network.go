package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"

	"github.com/sunaba-dev/sunaba/box"
)

// networkCall are the flags of box network.
type networkCall struct {
	allow   []string
	policy  string // a file
	nothing bool
}

func networkFlags(fs *flag.FlagSet, b *boxCall) {
	fs.Func("allow", "", func(s string) error { b.network.allow = append(b.network.allow, s); return nil })
	fs.StringVar(&b.network.policy, "network-policy", "", "")
	fs.BoolVar(&b.network.nothing, "allow-nothing", false, "")
}

// networkTold is what box network answers with in JSON.
type networkTold struct {
	Mode    box.NetMode     `json:"mode"`
	Up      bool            `json:"up"`
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
	wanted, err := b.network.wanted()
	if err != nil {
		return 0, err
	}
	var i box.NetworkInfo
	if wanted == nil {
		i, err = b.c.Network(ctx, box.Caller{}, id)
	} else {
		i, err = b.c.SetNetwork(ctx, box.Caller{}, id, wanted)
	}
	if err != nil {
		return 0, err
	}
	told := networkTold{i.Mode, i.Up, i.Rules, i.Traffic}
	if len(told.Rules) == 0 {
		told.Rules = json.RawMessage("null")
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
		for _, line := range denialWords(t.Denied) {
			fmt.Println(line)
		}
	})
}

// wanted is the key network that the flags ask for; nil if they ask for no change.
func (n networkCall) wanted() (json.RawMessage, error) {
	given := 0
	for _, g := range []bool{n.nothing, len(n.allow) > 0, n.policy != ""} {
		if g {
			given++
		}
	}
	network := map[string]any{"mode": box.NetAllowlist}
	switch {
	case given == 0:
		return nil, nil
	case given > 1:
		return nil, box.Errorf(box.Invalid, "set network", "cannot use more than one of --allow, --allow-nothing and --network-policy: each is all that the box may reach")
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
