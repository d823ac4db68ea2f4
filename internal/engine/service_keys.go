package engine

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sunaba-dev/sunaba/box"
)

// Authenticate implements box.Keys.
func (s *Service) Authenticate(ctx context.Context, secret string) (box.Caller, error) {
	k, err := s.cfg.Store.FindKey(ctx, secret)
	if err != nil {
		return box.Caller{}, err
	}
	return box.Caller{Tenant: k.Tenant, Principal: k.Principal, Scopes: k.Scopes}, nil
}

// CreateKey implements box.Keys.
func (s *Service) CreateKey(ctx context.Context, c box.Caller, k box.Key) (box.Key, string, error) {
	if err := c.May(box.ScopeAdmin); err != nil {
		return box.Key{}, "", err
	}
	for what, name := range map[string]string{"tenant": k.Tenant, "principal": k.Principal} {
		if name == "" || len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
			return box.Key{}, "", box.Errorf(box.Invalid, "create key", "cannot make a key for %s %q: allowed are 1 to 128 bytes of visible characters", what, name[:min(len(name), 60)])
		}
	}
	if len(k.Scopes) == 0 {
		return box.Key{}, "", box.Errorf(box.Invalid, "create key", "cannot make a key without scopes; known are %s", joined(box.Scopes()))
	}
	for _, scope := range k.Scopes {
		if !slices.Contains(box.Scopes(), scope) {
			return box.Key{}, "", box.Errorf(box.Invalid, "create key", "cannot make a key with scope %q; known are %s", scope, joined(box.Scopes()))
		}
	}
	k.Created = now()
	secret, err := s.cfg.Store.NewKey(ctx, k)
	if err != nil {
		return box.Key{}, "", err
	}
	made, err := s.cfg.Store.FindKey(ctx, secret)
	s.cfg.Log.InfoContext(ctx, "key created", "key", made.ID, "tenant", made.Tenant, "principal", made.Principal, "scopes", made.Scopes, "by", c.Principal)
	return made, secret, err
}

// ListKeys implements box.Keys.
func (s *Service) ListKeys(ctx context.Context, c box.Caller, tenant string) ([]box.Key, error) {
	if err := c.May(box.ScopeAdmin); err != nil {
		return nil, err
	}
	return s.cfg.Store.ListKeys(ctx, tenant)
}

// RevokeKey implements box.Keys.
func (s *Service) RevokeKey(ctx context.Context, c box.Caller, id string) error {
	if err := c.May(box.ScopeAdmin); err != nil {
		return err
	}
	s.cfg.Log.InfoContext(ctx, "key revoked", "key", id, "by", c.Principal, "at", time.Now())
	return s.cfg.Store.RevokeKey(ctx, id)
}

func joined(scopes []box.Scope) string {
	var all []string
	for _, s := range scopes {
		all = append(all, string(s))
	}
	return strings.Join(all, ", ")
}
