package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Snapshot is the row of one.
type Snapshot struct {
	box.SnapshotInfo
	Tenant    string
	Principal string
	Sandbox   []byte // of the box that it is of, as JSON; it may hold what is in an environment
}

const snapshotColumns = "tenant, id, name, principal, kind, tier, image, box, spec, bytes, created"

// AddSnapshot writes the row of a snapshot that is there. A tenant may have so many,
// and so many bytes in all; 0 is no bound. More is Exhausted, and a name that is in
// use is Conflict.
func (s *Store) AddSnapshot(ctx context.Context, r Snapshot, most int, mostBytes int64) error {
	return s.change(ctx, "keep snapshot", func(tx *sql.Tx) error {
		left, err := roomFor(ctx, tx, r.Tenant, r.Name, most, mostBytes)
		if err == nil && r.Bytes > left {
			err = noBytes(mostBytes - left)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO snapshots ("+snapshotColumns+") VALUES (?,?,?,?,?,?,?,?,?,?,?)",
			r.Tenant, r.ID, r.Name, r.Principal, r.Kind, r.Tier, r.Image, r.Box, bytesOf(r.Sandbox), r.Bytes, millis(r.Created))
		if err != nil {
			return fmt.Errorf("cannot keep snapshot: %w", err)
		}
		return nil
	})
}

// RoomForSnapshot says what AddSnapshot would, before a snapshot is made, and how
// many bytes it may have.
func (s *Store) RoomForSnapshot(ctx context.Context, tenant, name string, most int, mostBytes int64) (left int64, err error) {
	return roomFor(ctx, s.db, tenant, name, most, mostBytes)
}

func noBytes(has int64) error {
	return box.Errorf(box.Exhausted, "keep snapshot", "cannot keep snapshot: the tenant's have %d bytes already, and there is no room for more", has).
		WithHint("delete snapshots that are not needed any more; the operator can allow more (`sunaba serve --max-snapshot-bytes`)")
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func roomFor(ctx context.Context, q querier, tenant, name string, most int, mostBytes int64) (left int64, err error) {
	var all, named int
	var bytes int64
	if err := q.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = ? AND name <> ''), coalesce(sum(bytes), 0) FROM snapshots WHERE tenant = ?", name, tenant).Scan(&all, &named, &bytes); err != nil {
		return 0, fmt.Errorf("cannot count snapshots: %w", err)
	}
	switch {
	case named > 0:
		return 0, box.Errorf(box.Conflict, "keep snapshot", "cannot keep snapshot as %q: there is one of that name", name).
			WithHint("choose another name, or delete that one")
	case most > 0 && all >= most:
		return 0, box.Errorf(box.Exhausted, "keep snapshot", "cannot keep snapshot: the tenant has %d already, which is all that it may", all).
			WithHint("delete snapshots that are not needed any more")
	case mostBytes <= 0:
		return math.MaxInt64, nil
	case bytes >= mostBytes:
		return 0, noBytes(bytes)
	}
	return mostBytes - bytes, nil
}

// Snapshot returns a tenant's by its ID or name. One of another tenant's is not
// found, like one that never was.
func (s *Store) Snapshot(ctx context.Context, tenant, ref string) (Snapshot, error) {
	return oneSnapshot(s.db.QueryRowContext(ctx, "SELECT "+snapshotColumns+" FROM snapshots WHERE tenant = ? AND (id = ? OR name = ? AND name <> '')", tenant, ref, ref), ref)
}

// Before is where a list of snapshots goes on: behind this row.
type Before struct {
	Created time.Time
	ID      string
}

// Snapshots returns at most n of a tenant's, newest first, those behind the given
// place; of one box if it is not empty.
func (s *Store) Snapshots(ctx context.Context, tenant string, of box.ID, before Before, n int) ([]Snapshot, error) {
	query, args := "SELECT "+snapshotColumns+" FROM snapshots WHERE tenant = ?", []any{tenant}
	if of != "" {
		query, args = query+" AND box = ?", append(args, of)
	}
	if before.ID != "" {
		query, args = query+" AND (created, id) < (?, ?)", append(args, millis(before.Created), before.ID)
	}
	rows, err := s.db.QueryContext(ctx, query+" ORDER BY created DESC, id DESC LIMIT ?", append(args, n)...)
	if err != nil {
		return nil, fmt.Errorf("cannot list snapshots: %w", err)
	}
	defer rows.Close()
	out := []Snapshot{}
	for rows.Next() {
		r, err := oneSnapshot(rows, "")
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot list snapshots: %w", err)
	}
	return out, nil
}

// ForgetSnapshot deletes a tenant's row and returns it. It comes before the files
// go: what no row knows is removed at the next start.
func (s *Store) ForgetSnapshot(ctx context.Context, tenant, ref string) (Snapshot, error) {
	var r Snapshot
	err := s.change(ctx, "delete snapshot", func(tx *sql.Tx) (err error) {
		r, err = oneSnapshot(tx.QueryRowContext(ctx, "DELETE FROM snapshots WHERE tenant = ? AND (id = ? OR name = ? AND name <> '') RETURNING "+snapshotColumns, tenant, ref, ref), ref)
		return err
	})
	return r, err
}

// SnapshotIDs returns those of all tenants.
func (s *Store) SnapshotIDs(ctx context.Context) (map[string]bool, error) {
	var all string
	// A digest has no comma in it.
	if err := s.db.QueryRowContext(ctx, "SELECT coalesce(group_concat(id), '') FROM snapshots").Scan(&all); err != nil {
		return nil, fmt.Errorf("cannot list snapshots: %w", err)
	}
	out := map[string]bool{}
	for id := range strings.SplitSeq(all, ",") {
		if id != "" {
			out[id] = true
		}
	}
	return out, nil
}

func oneSnapshot(from row, ref string) (Snapshot, error) {
	var r Snapshot
	var created int64
	err := from.Scan(&r.Tenant, &r.ID, &r.Name, &r.Principal, &r.Kind, &r.Tier, &r.Image, &r.Box, &r.Sandbox, &r.Bytes, &created)
	if errors.Is(err, sql.ErrNoRows) {
		return r, box.Errorf(box.NotFound, "find snapshot", "cannot find snapshot %.100q", ref)
	}
	if err != nil {
		return r, fmt.Errorf("cannot read row of a snapshot: %w", err)
	}
	r.Created = timeOf(created)
	return r, nil
}
