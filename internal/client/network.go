package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/sunaba-dev/sunaba/box"
)

type networkJSON struct {
	Mode    box.NetMode     `json:"mode"`
	Up      bool            `json:"up"`
	Network json.RawMessage `json:"network"`
	Rules   json.RawMessage `json:"rules"`
	Traffic box.Traffic     `json:"traffic"`
}

func (c *Client) network(ctx context.Context, q call) (box.NetworkInfo, error) {
	var n networkJSON
	if err := c.do(ctx, q, &n); err != nil {
		return box.NetworkInfo{}, err
	}
	if n.Mode != box.NetNone && n.Mode != box.NetAllowlist {
		return box.NetworkInfo{}, wrong("%q is no network mode", n.Mode)
	}
	for _, raw := range []*json.RawMessage{&n.Network, &n.Rules} {
		if bytes.Equal(*raw, []byte("null")) {
			*raw = nil
		}
	}
	return box.NetworkInfo{Mode: n.Mode, Up: n.Up, Rules: n.Rules, Asked: n.Network, Traffic: n.Traffic}, nil
}

// Network implements box.NetworkService.
func (c *Client) Network(ctx context.Context, _ box.Caller, id box.ID) (box.NetworkInfo, error) {
	return c.network(ctx, call{method: http.MethodGet, path: boxPath(id, "/network")})
}

// SetNetwork implements box.NetworkService.
func (c *Client) SetNetwork(ctx context.Context, _ box.Caller, id box.ID, wanted json.RawMessage) (box.NetworkInfo, error) {
	return c.network(ctx, call{method: http.MethodPut, path: boxPath(id, "/network"), in: map[string]any{"network": wanted}})
}
