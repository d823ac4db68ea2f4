package rest

import (
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// Network is what is known of a box's network.
type Network struct {
	Mode    box.NetMode     `json:"mode" enum:"none,allowlist"`
	Up      bool            `json:"up" doc:"The gateway has the box's link. While it has not, nothing answers the box."`
	Network json.RawMessage `json:"network" doc:"What was asked for last, as PUT takes it; null without a network."`
	Rules   json.RawMessage `json:"rules" doc:"Those in force, compiled; null without a network."`
	Traffic box.Traffic     `json:"traffic"`
}

func networkOf(i box.NetworkInfo) Network {
	i.Traffic.Denied = list(i.Traffic.Denied)
	n := Network{Mode: i.Mode, Up: i.Up, Network: i.Asked, Rules: i.Rules, Traffic: i.Traffic}
	for _, raw := range []*json.RawMessage{&n.Network, &n.Rules} {
		if len(*raw) == 0 {
			*raw = json.RawMessage("null")
		}
	}
	return n
}

func (a *API) network(ctx context.Context, in *BoxPath) (Network, error) {
	i, err := a.Service.Network(ctx, server.CallerOf(ctx), box.ID(in.ID))
	if err != nil {
		return Network{}, err
	}
	return networkOf(i), nil
}

// Reach is the key network of a configuration, passed on as it is.
type Reach struct{ json.RawMessage }

// Schema implements huma.SchemaProvider.
func (Reach) Schema(huma.Registry) *huma.Schema {
	for _, k := range sandboxKeys() {
		if k.name == "network" {
			return k.schema()
		}
	}
	return &huma.Schema{Type: huma.TypeObject}
}

type setNetworkRequest struct {
	BoxPath
	Body struct {
		Network Reach `json:"network" doc:"The key network of a configuration: allowlist, or rules; with mode allowlist alone nothing is reached."`
	}
}

func (a *API) setNetwork(ctx context.Context, in *setNetworkRequest) (Network, error) {
	i, err := a.Service.SetNetwork(ctx, server.CallerOf(ctx), box.ID(in.ID), in.Body.Network.RawMessage)
	if err != nil {
		return Network{}, err
	}
	return networkOf(i), nil
}
