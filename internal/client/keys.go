package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

type keyJSON struct {
	ID        string      `json:"id"`
	Tenant    string      `json:"tenant"`
	Principal string      `json:"principal"`
	Scopes    []box.Scope `json:"scopes"`
	Created   time.Time   `json:"created_at"`
	Secret    string      `json:"key"`
}

func (k keyJSON) key() box.Key {
	return box.Key{ID: k.ID, Tenant: k.Tenant, Principal: k.Principal, Scopes: k.Scopes, Created: k.Created}
}

// CreateKey makes a key, as box.Keys says.
func (c *Client) CreateKey(ctx context.Context, _ box.Caller, k box.Key) (box.Key, string, error) {
	var made keyJSON
	in := map[string]any{"tenant": k.Tenant, "principal": k.Principal, "scopes": k.Scopes}
	if err := c.do(ctx, call{method: http.MethodPost, path: "/keys", in: in}, &made); err != nil {
		return box.Key{}, "", err
	}
	return made.key(), made.Secret, nil
}

// ListKeys lists all keys, as box.Keys says.
func (c *Client) ListKeys(ctx context.Context, _ box.Caller, tenant string) ([]box.Key, error) {
	out := []box.Key{}
	for cursor := ""; ; {
		q := url.Values{"limit": {"1000"}}
		if tenant != "" {
			q.Set("tenant", tenant)
		}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var page struct {
			Keys []keyJSON `json:"keys"`
			Next string    `json:"next"`
		}
		if err := c.do(ctx, call{method: http.MethodGet, path: "/keys", query: q}, &page); err != nil {
			return nil, err
		}
		for _, k := range page.Keys {
			out = append(out, k.key())
		}
		if page.Next == "" || page.Next <= cursor {
			return out, nil
		}
		cursor = page.Next
	}
}

// RevokeKey makes a key useless, as box.Keys says.
func (c *Client) RevokeKey(ctx context.Context, _ box.Caller, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/keys/" + segment(id)}, nil)
}
