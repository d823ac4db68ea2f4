package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// answeredFor is how long an idempotency key is remembered.
const answeredFor = 24 * time.Hour

// Claim ties a tenant's idempotency key to a box that is about to be made, and
// returns that box's id; if the key was claimed before, the id of the box that
// was made then. The same key with another request, told by its digest, is
// Invalid. Keys are forgotten after a day.
func (s *Store) Claim(ctx context.Context, tenant, key string, request []byte, id box.ID) (made box.ID, first bool, err error) {
	err = s.change(ctx, "claim idempotency key", func(tx *sql.Tx) error {
		now := time.Now()
		if _, err := tx.ExecContext(ctx, "DELETE FROM answered WHERE created < ?", millis(now.Add(-answeredFor))); err != nil {
			return fmt.Errorf("cannot forget idempotency keys: %w", err)
		}
		var was []byte
		err := tx.QueryRowContext(ctx, "SELECT request, box FROM answered WHERE tenant = ? AND key = ?", tenant, key).Scan(&was, &made)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			made, first = id, true
			if _, err := tx.ExecContext(ctx, "INSERT INTO answered (tenant, key, request, box, created) VALUES (?,?,?,?,?)", tenant, key, request, id, millis(now)); err != nil {
				return fmt.Errorf("cannot claim idempotency key: %w", err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("cannot look for idempotency key: %w", err)
		case !bytes.Equal(was, request):
			return otherRequest(key)
		}
		return nil
	})
	return made, first, err
}

// Claimed returns the box that a tenant's idempotency key was tied to before, and
// whether it was. Another request with that key is Invalid, as with Claim.
func (s *Store) Claimed(ctx context.Context, tenant, key string, request []byte) (made box.ID, before bool, err error) {
	var was []byte
	err = s.db.QueryRowContext(ctx, "SELECT request, box FROM answered WHERE tenant = ? AND key = ? AND created >= ?", tenant, key, millis(time.Now().Add(-answeredFor))).Scan(&was, &made)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("cannot look for idempotency key: %w", err)
	case !bytes.Equal(was, request):
		return "", false, otherRequest(key)
	}
	return made, true, nil
}

func otherRequest(key string) error {
	return box.Errorf(box.Invalid, "claim idempotency key", "cannot use idempotency key %q: it came with another request before", key).
		WithHint("use a new key for a new request")
}

// Unclaim forgets a key whose box could not be made, so that the request may be
// tried again.
func (s *Store) Unclaim(ctx context.Context, tenant, key string, id box.ID) error {
	return s.change(ctx, "release idempotency key", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM answered WHERE tenant = ? AND key = ? AND box = ?", tenant, key, id); err != nil {
			return fmt.Errorf("cannot release idempotency key: %w", err)
		}
		return nil
	})
}

// UnclaimFailed forgets the keys of boxes that were never made, as a daemon that
// died leaves them: the request may be tried again. It is for a start, when
// nobody is making any.
func (s *Store) UnclaimFailed(ctx context.Context) error {
	return s.change(ctx, "release idempotency keys", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM answered WHERE box NOT IN (SELECT id FROM boxes WHERE reason <> ?)", box.ReasonFailed); err != nil {
			return fmt.Errorf("cannot release idempotency keys: %w", err)
		}
		return nil
	})
}
