package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// keyPrefix begins every key; 40 hexadecimal digits follow. The form is E2B's,
// whose clients check it.
const keyPrefix = "e2b_"

// NewKey makes a key with 160 random bits for a principal and returns it, this
// once.
func (s *Store) NewKey(ctx context.Context, k box.Key) (string, error) {
	var b [20]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	secret := keyPrefix + hex.EncodeToString(b[:])
	return secret, s.AddKey(ctx, secret, k)
}

// AddKey keeps a key that the caller has chosen, by its hash. The same key twice
// is no error if it is the same principal's.
func (s *Store) AddKey(ctx context.Context, secret string, k box.Key) error {
	if err := checkKey(secret); err != nil {
		return err
	}
	if k.Tenant == "" || k.Principal == "" || len(k.Scopes) == 0 {
		return fmt.Errorf("cannot keep key: it belongs to nobody or permits nothing")
	}
	hash := hashOf(secret)
	return s.change(ctx, "keep key", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO keys (id, hash, tenant, principal, scopes, created) VALUES (?,?,?,?,?,?) ON CONFLICT (hash) DO UPDATE SET scopes = excluded.scopes, revoked = 0 WHERE tenant = excluded.tenant AND principal = excluded.principal",
			hex.EncodeToString(hash[:6]), hash, k.Tenant, k.Principal, joined(k.Scopes), millis(time.Now()))
		if err != nil {
			return fmt.Errorf("cannot keep key: %w", err)
		}
		return nil
	})
}

func checkKey(secret string) error {
	digits, ok := strings.CutPrefix(secret, keyPrefix)
	if _, err := hex.DecodeString(digits); !ok || err != nil || len(digits) != 40 {
		return box.Errorf(box.Invalid, "read key", "cannot use key: it is not %s and 40 hexadecimal digits", keyPrefix)
	}
	return nil
}

// FindKey returns whose key it is. It looks for the key's hash: how long that
// takes tells nothing of a key.
func (s *Store) FindKey(ctx context.Context, secret string) (box.Key, error) {
	unknown := box.Errorf(box.Denied, "read key", "cannot accept key: it is unknown or was revoked")
	if checkKey(secret) != nil {
		return box.Key{}, unknown
	}
	var k box.Key
	var scopes string
	var created int64
	err := s.db.QueryRowContext(ctx, "SELECT id, tenant, principal, scopes, created FROM keys WHERE hash = ? AND revoked = 0", hashOf(secret)).
		Scan(&k.ID, &k.Tenant, &k.Principal, &scopes, &created)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return box.Key{}, unknown
	case err != nil:
		return box.Key{}, fmt.Errorf("cannot look for key: %w", err)
	}
	k.Scopes, k.Created = scopesOf(scopes), timeOf(created)
	return k, nil
}

// RevokeKey makes a key useless, for good unless it is added again.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	return s.change(ctx, "revoke key", func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE keys SET revoked = ? WHERE id = ? AND revoked = 0", millis(time.Now()), id)
		if err != nil {
			return fmt.Errorf("cannot revoke key: %w", err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return box.Errorf(box.NotFound, "revoke key", "cannot find key %q", id)
		}
		return nil
	})
}

// ListKeys lists the keys in force, of one tenant or, if it is empty, of all.
func (s *Store) ListKeys(ctx context.Context, tenant string) ([]box.Key, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, tenant, principal, scopes, created FROM keys WHERE revoked = 0 AND (tenant = ? OR ? = '') ORDER BY created, id", tenant, tenant)
	if err != nil {
		return nil, fmt.Errorf("cannot list keys: %w", err)
	}
	defer rows.Close()
	out := []box.Key{}
	for rows.Next() {
		var k box.Key
		var scopes string
		var created int64
		if err := rows.Scan(&k.ID, &k.Tenant, &k.Principal, &scopes, &created); err != nil {
			return nil, fmt.Errorf("cannot list keys: %w", err)
		}
		k.Scopes, k.Created = scopesOf(scopes), timeOf(created)
		out = append(out, k)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot list keys: %w", err)
	}
	return out, nil
}

func joined(scopes []box.Scope) string {
	var all []string
	for _, s := range scopes {
		all = append(all, string(s))
	}
	return strings.Join(all, " ")
}

func scopesOf(joined string) []box.Scope {
	var all []box.Scope
	for _, s := range strings.Fields(joined) {
		all = append(all, box.Scope(s))
	}
	return all
}

// Keys is how many keys are in force.
func (s *Store) Keys(ctx context.Context) (int, error) {
	var n int
	if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM keys WHERE revoked = 0").Scan(&n); err != nil {
		return 0, fmt.Errorf("cannot count keys: %w", err)
	}
	return n, nil
}

func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
