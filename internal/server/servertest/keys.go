package servertest

import (
	"context"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// KeyID is the id of a key that there is.
const KeyID = "0123456789ab"

// Authenticate implements box.Keys.
func (s *Service) Authenticate(ctx context.Context, key string) (box.Caller, error) {
	return s.Auth(ctx, key)
}

func (s *Service) asAdmin(c box.Caller) error {
	if err := s.refused(); err != nil {
		return err
	}
	return c.May(box.ScopeAdmin)
}

// CreateKey implements box.Keys.
func (s *Service) CreateKey(_ context.Context, c box.Caller, k box.Key) (box.Key, string, error) {
	if err := s.asAdmin(c); err != nil {
		return box.Key{}, "", err
	}
	k.ID, k.Created = "ba9876543210", time.Now()
	return k, "e2b_new", nil
}

// ListKeys implements box.Keys.
func (s *Service) ListKeys(_ context.Context, c box.Caller, tenant string) ([]box.Key, error) {
	if err := s.asAdmin(c); err != nil {
		return nil, err
	}
	all := []box.Key{}
	for _, id := range []string{KeyID, "1123456789ab", "2123456789ab"} {
		if tenant == "" || tenant == "t" {
			all = append(all, box.Key{ID: id, Tenant: "t", Principal: "p", Scopes: []box.Scope{box.ScopeRead}, Created: time.Now()})
		}
	}
	return all, nil
}

// RevokeKey implements box.Keys.
func (s *Service) RevokeKey(_ context.Context, c box.Caller, id string) error {
	if err := s.asAdmin(c); err != nil {
		return err
	}
	if id != KeyID {
		return box.Errorf(box.NotFound, "revoke key", "cannot find key %q", id)
	}
	return nil
}
