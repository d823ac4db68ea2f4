package rest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// Key is what is known of an API key.
type Key struct {
	ID        string      `json:"id" doc:"Fit for logs; not the key itself."`
	Tenant    string      `json:"tenant"`
	Principal string      `json:"principal"`
	Scopes    []box.Scope `json:"scopes"`
	Created   time.Time   `json:"created_at"`
}

// NewKey is a key that was just made.
type NewKey struct {
	Key
	Secret string `json:"key" doc:"Shown this once: it is not kept."`
}

type keyRequest struct {
	Body struct {
		Tenant    string      `json:"tenant" minLength:"1" maxLength:"128"`
		Principal string      `json:"principal" minLength:"1" maxLength:"128" doc:"Who it is for, as it appears with boxes and in logs."`
		Scopes    []box.Scope `json:"scopes" minItems:"1" maxItems:"8" enum:"read,write,exec,admin"`
	}
}

func keyOf(k box.Key) Key {
	return Key{ID: k.ID, Tenant: k.Tenant, Principal: k.Principal, Scopes: list(k.Scopes), Created: k.Created.UTC()}
}

func (a *API) createKey(ctx context.Context, in *keyRequest) (NewKey, error) {
	k, secret, err := a.Keys.CreateKey(ctx, server.CallerOf(ctx), box.Key{Tenant: in.Body.Tenant, Principal: in.Body.Principal, Scopes: in.Body.Scopes})
	if err != nil {
		return NewKey{}, err
	}
	return NewKey{keyOf(k), secret}, nil
}

type keysRequest struct {
	PageQuery
	Tenant string `query:"tenant" maxLength:"128" doc:"Only this tenant's."`
}

// KeyPage is a page of keys.
type KeyPage struct {
	Keys []Key  `json:"keys"`
	Next string `json:"next" doc:"The cursor of the next page; empty at the end."`
}

// listKeys tells of keys in the order of their ids, which is that of the cursor.
func (a *API) listKeys(ctx context.Context, in *keysRequest) (KeyPage, error) {
	all, err := a.Keys.ListKeys(ctx, server.CallerOf(ctx), in.Tenant)
	if err != nil {
		return KeyPage{}, err
	}
	slices.SortFunc(all, func(x, y box.Key) int { return strings.Compare(x.ID, y.ID) })
	all = slices.DeleteFunc(all, func(k box.Key) bool { return k.ID <= in.Cursor })
	n := in.Limit
	if n == 0 {
		n = 100
	}
	page := KeyPage{Keys: []Key{}}
	for _, k := range all[:min(n, len(all))] {
		page.Keys = append(page.Keys, keyOf(k))
	}
	if len(all) > n {
		page.Next = all[n-1].ID
	}
	return page, nil
}

type keyPath struct {
	Key string `path:"key" maxLength:"64" doc:"The key's id."`
}

func (a *API) revokeKey(ctx context.Context, in *keyPath) error {
	return a.Keys.RevokeKey(ctx, server.CallerOf(ctx), in.Key)
}
