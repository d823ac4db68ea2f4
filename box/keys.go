package box

import (
	"context"
	"time"
)

// Keys are who may call a [Service]. All but Authenticate are for callers with
// [ScopeAdmin], who may do so for every tenant.
type Keys interface {
	// Authenticate returns whose key it is. An unknown or revoked one is Denied.
	Authenticate(ctx context.Context, secret string) (Caller, error)
	// CreateKey makes a key and returns it, this once: it is not kept.
	CreateKey(context.Context, Caller, Key) (_ Key, secret string, err error)
	// ListKeys lists the keys in force, of one tenant or, if it is empty, of all.
	ListKeys(ctx context.Context, c Caller, tenant string) ([]Key, error)
	// RevokeKey makes a key useless for good.
	RevokeKey(ctx context.Context, c Caller, id string) error
}

// Key is what is known of an API key.
type Key struct {
	ID        string // fit for logs
	Tenant    string
	Principal string
	Scopes    []Scope
	Created   time.Time
}
