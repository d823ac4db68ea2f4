package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Volume is the row of one.
type Volume struct {
	Tenant    string
	Name      string
	Principal string // who made it
	File      string // below the folder of volumes; of no other row, ever
	Bytes     int64
	Created   time.Time
}

const volumeColumns = "tenant, name, principal, file, bytes, created"

// AddVolume writes the row of a volume whose file is there. A tenant may have so
// many, and so many bytes in all; 0 is no bound. More is Exhausted, and a name that
// is in use is Conflict.
func (s *Store) AddVolume(ctx context.Context, v Volume, most int, mostBytes int64) error {
	return s.change(ctx, "keep volume", func(tx *sql.Tx) error {
		if err := roomForVolume(ctx, tx, v, most, mostBytes); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO volumes ("+volumeColumns+") VALUES (?,?,?,?,?,?)",
			v.Tenant, v.Name, v.Principal, v.File, v.Bytes, millis(v.Created))
		if err != nil {
			return fmt.Errorf("cannot keep volume: %w", err)
		}
		return nil
	})
}

// RoomForVolume says what AddVolume would, before a file is made.
func (s *Store) RoomForVolume(ctx context.Context, v Volume, most int, mostBytes int64) error {
	return roomForVolume(ctx, s.db, v, most, mostBytes)
}

func roomForVolume(ctx context.Context, q querier, v Volume, most int, mostBytes int64) error {
	var all, named int
	var bytes int64
	err := q.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = ?), coalesce(sum(bytes), 0) FROM volumes WHERE tenant = ?", v.Name, v.Tenant).Scan(&all, &named, &bytes)
	const op = "keep volume"
	switch {
	case err != nil:
		return fmt.Errorf("cannot count volumes: %w", err)
	case named > 0:
		return box.Errorf(box.Conflict, op, "cannot make volume %q: there is one of that name", v.Name).
			WithHint("choose another name, or delete that one")
	case most > 0 && all >= most:
		return box.Errorf(box.Exhausted, op, "cannot make volume %q: the tenant has %d already, which is all that it may", v.Name, all).
			WithHint("delete volumes that are not needed any more")
	case mostBytes > 0 && v.Bytes > mostBytes-bytes:
		return box.Errorf(box.Exhausted, op, "cannot make volume %q of %d bytes: the tenant's volumes have %d already, and may have %d together", v.Name, v.Bytes, bytes, mostBytes).
			WithHint("ask for less, or delete volumes that are not needed any more")
	}
	return nil
}

// Volume returns a tenant's by its name. Another tenant's is not found, like one
// that never was.
func (s *Store) Volume(ctx context.Context, tenant, name string) (Volume, error) {
	return oneVolume(s.db.QueryRowContext(ctx, "SELECT "+volumeColumns+" FROM volumes WHERE tenant = ? AND name = ?", tenant, name), name)
}

// Volumes returns all of a tenant's by name; of all tenants if it is empty.
func (s *Store) Volumes(ctx context.Context, tenant string) ([]Volume, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+volumeColumns+" FROM volumes WHERE ? IN ('', tenant) ORDER BY tenant, name", tenant)
	if err != nil {
		return nil, fmt.Errorf("cannot list volumes: %w", err)
	}
	defer rows.Close()
	out := []Volume{}
	for rows.Next() {
		v, err := oneVolume(rows, "")
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot list volumes: %w", err)
	}
	return out, nil
}

// ForgetVolume deletes the row of one that has this file.
func (s *Store) ForgetVolume(ctx context.Context, v Volume) error {
	return s.change(ctx, "delete volume", func(tx *sql.Tx) error {
		_, err := oneVolume(tx.QueryRowContext(ctx, "DELETE FROM volumes WHERE tenant = ? AND name = ? AND file = ? RETURNING "+volumeColumns, v.Tenant, v.Name, v.File), v.Name)
		return err
	})
}

func oneVolume(from row, name string) (Volume, error) {
	var v Volume
	var created int64
	err := from.Scan(&v.Tenant, &v.Name, &v.Principal, &v.File, &v.Bytes, &created)
	if errors.Is(err, sql.ErrNoRows) {
		return v, box.Errorf(box.NotFound, "find volume", "cannot find volume %.100q", name)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read row of a volume: %w", err)
	}
	v.Created = timeOf(created)
	return v, nil
}
