package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

const columns = "id, tenant, principal, phase, reason, tier, tier_reason, image, weak, spec, state, metadata, detail, account, created, ends, destroyed"

// keptDestroyed is how many of a tenant's boxes are remembered after their end.
// Without a bound whoever makes and destroys boxes fills the disk.
const keptDestroyed = 1000

// Add writes the row of a new box. It comes before the box. Of the tenant's
// destroyed ones those before the last 1000 are forgotten.
func (s *Store) Add(ctx context.Context, r box.Record) error {
	if err := r.Valid(); err != nil {
		return err
	}
	weak, err := json.Marshal(orEmpty(r.Weak))
	if err != nil {
		return fmt.Errorf("cannot keep box %s: %w", r.ID, err)
	}
	meta := []byte("{}")
	if len(r.Metadata) > 0 {
		if meta, err = json.Marshal(r.Metadata); err != nil {
			return fmt.Errorf("cannot keep box %s: %w", r.ID, err)
		}
	}
	return s.changeBox(ctx, "keep box "+string(r.ID), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO boxes ("+columns+") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			r.ID, r.Tenant, r.Principal, r.Phase, r.Reason, r.Tier, r.TierReason, r.Image, string(weak), bytesOf(r.Spec), bytesOf(r.State), string(meta), r.Detail, bytesOf(r.Account),
			millis(r.Created), millis(r.Ends), millis(r.Destroyed))
		if err != nil {
			return fmt.Errorf("cannot keep box %s: %w", r.ID, err)
		}
		return forget(ctx, tx, r.Tenant)
	})
}

// forget drops what is beyond keptDestroyed, with the idempotency keys that led
// there.
func forget(ctx context.Context, tx *sql.Tx, tenant string) error {
	const old = "SELECT id FROM boxes WHERE tenant = ? AND phase = ? ORDER BY created DESC, id DESC LIMIT -1 OFFSET ?"
	for _, step := range []string{"DELETE FROM answered WHERE box IN (" + old + ")", "DELETE FROM boxes WHERE id IN (" + old + ")"} {
		if _, err := tx.ExecContext(ctx, step, tenant, box.PhaseDestroyed, keptDestroyed); err != nil {
			return fmt.Errorf("cannot forget boxes: %w", err)
		}
	}
	return nil
}

// Change reads a box's row, lets fn change it, and writes it, as one step: no
// other change comes between. A change of phase that [box.Phase.Become] refuses
// is not written. Id, owner and time of creation stay. An error of fn is
// returned as it is.
func (s *Store) Change(ctx context.Context, id box.ID, fn func(*box.Record) error) (box.Record, error) {
	var out box.Record
	err := s.changeBox(ctx, "change box "+string(id), func(tx *sql.Tx) error {
		old, err := one(tx.QueryRowContext(ctx, "SELECT "+columns+" FROM boxes WHERE id = ?", id), id)
		if err != nil {
			return err
		}
		r := old
		if err := fn(&r); err != nil {
			return err
		}
		if r.Phase != old.Phase {
			if err := old.Phase.Become(r.Phase); err != nil {
				return err
			}
		}
		r.ID, r.Tenant, r.Principal, r.Created = old.ID, old.Tenant, old.Principal, old.Created
		if err := r.Valid(); err != nil {
			return err
		}
		weak, err := json.Marshal(orEmpty(r.Weak))
		if err != nil {
			return fmt.Errorf("cannot change box %s: %w", id, err)
		}
		_, err = tx.ExecContext(ctx, "UPDATE boxes SET phase=?, reason=?, tier=?, tier_reason=?, image=?, weak=?, spec=?, state=?, detail=?, account=?, ends=?, destroyed=? WHERE id=?",
			r.Phase, r.Reason, r.Tier, r.TierReason, r.Image, string(weak), bytesOf(r.Spec), bytesOf(r.State), r.Detail, bytesOf(r.Account), millis(r.Ends), millis(r.Destroyed), id)
		if err != nil {
			return fmt.Errorf("cannot change box %s: %w", id, err)
		}
		out = r
		return nil
	})
	return out, err
}

// Box returns a tenant's box. One of another tenant's is not found, like one
// that never was.
func (s *Store) Box(ctx context.Context, tenant string, id box.ID) (box.Record, error) {
	return one(s.db.QueryRowContext(ctx, "SELECT "+columns+" FROM boxes WHERE id = ? AND tenant = ?", id, tenant), id)
}

// Alive returns every box that is not destroyed, whoever owns it.
func (s *Store) Alive(ctx context.Context) ([]box.Record, error) {
	return s.list(ctx, "SELECT "+columns+" FROM boxes WHERE phase <> ? ORDER BY created, id", box.PhaseDestroyed)
}

// Place is where a list goes on: after this row.
type Place struct {
	Created time.Time
	ID      box.ID
}

// List returns at most n of a tenant's boxes in the order of their creation,
// those after the given place, destroyed ones only if asked.
func (s *Store) List(ctx context.Context, tenant string, destroyed bool, after Place, n int) ([]box.Record, error) {
	query := "SELECT " + columns + " FROM boxes WHERE tenant = ? AND (created, id) > (?, ?)"
	if !destroyed {
		query += " AND phase <> '" + string(box.PhaseDestroyed) + "'"
	}
	return s.list(ctx, query+" ORDER BY created, id LIMIT ?", tenant, millis(after.Created), after.ID, n)
}

func (s *Store) list(ctx context.Context, query string, args ...any) ([]box.Record, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("cannot list boxes: %w", err)
	}
	defer rows.Close()
	out := []box.Record{}
	for rows.Next() {
		r, err := one(rows, "")
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot list boxes: %w", err)
	}
	return out, nil
}

// row is what one row is read from.
type row interface{ Scan(...any) error }

func one(from row, id box.ID) (box.Record, error) {
	var r box.Record
	var weak, meta string
	var created, ends, destroyed int64
	err := from.Scan(&r.ID, &r.Tenant, &r.Principal, &r.Phase, &r.Reason, &r.Tier, &r.TierReason, &r.Image, &weak, &r.Spec, &r.State, &meta, &r.Detail, &r.Account, &created, &ends, &destroyed)
	if errors.Is(err, sql.ErrNoRows) {
		return r, box.Errorf(box.NotFound, "find box", "cannot find box %s", id)
	}
	if err == nil {
		err = errors.Join(json.Unmarshal([]byte(weak), &r.Weak), json.Unmarshal([]byte(meta), &r.Metadata))
	}
	if err != nil {
		return r, fmt.Errorf("cannot read row of a box: %w", err)
	}
	r.Created, r.Ends, r.Destroyed = timeOf(created), timeOf(ends), timeOf(destroyed)
	return r, nil
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func bytesOf(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
