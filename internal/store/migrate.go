package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// copySuffix names the file in which a database is brought to this build's version,
// beside the database. One that a crash left is made anew.
const copySuffix = ".new"

// migrate brings the database to this build's version. An older one is changed in
// a copy that takes its place in one step: whatever happens, there is the old one
// or the new one. A new one has nothing to lose.
func (s *Store) migrate(ctx context.Context, path string, fresh bool) error {
	var version int
	if err := s.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return box.Errorf(box.Unusable, op, "cannot read database %s: %w", path, err)
	}
	all := steps()
	if version > len(all) {
		return box.Errorf(box.Unusable, op, "cannot use database %s: a later sunaba made it (version %d, this one knows %d)", path, version, len(all)).
			WithHint("use that sunaba, or name another state folder with --state")
	}
	if err := removeCopy(path); err != nil {
		return box.Errorf(box.Unusable, op, "cannot remove a copy of the database that was not finished: %w", err)
	}
	var err error
	switch {
	case version == len(all):
	case fresh:
		err = forward(ctx, s.db, version)
	default:
		if err = s.copyForward(ctx, path, version); err != nil {
			_ = removeCopy(path) // the next start does it, too
		}
	}
	if err != nil {
		return box.Errorf(box.Unusable, op, "cannot bring database %s from version %d to %d: it is as it was: %w", path, version, len(all), err).
			WithHint("is the disk full? As much room as the database takes is needed once more")
	}
	return nil
}

func removeCopy(path string) error {
	for _, more := range []string{"", "-journal", "-wal", "-shm"} {
		if err := os.Remove(path + copySuffix + more); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// forward takes the steps that are missing, each as one transaction.
func forward(ctx context.Context, db *sql.DB, version int) error {
	for v, step := range steps()[version:] {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, step+fmt.Sprintf("PRAGMA user_version = %d;", version+v+1)); err != nil {
			_ = tx.Rollback()
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) copyForward(ctx context.Context, path string, version int) error {
	to := path + copySuffix
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := s.db.ExecContext(ctx, "VACUUM INTO '"+strings.ReplaceAll(to, "'", "''")+"'"); err != nil {
		return err
	}
	db, err := connect(to, "DELETE", toDisk)
	if err != nil {
		return err
	}
	err = forward(ctx, db, version)
	if err == nil {
		err = whole(ctx, db)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	// What is written beside the old one would be taken for the new one's.
	if _, err := s.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return err
	}
	if err := s.db.Close(); err != nil {
		return err
	}
	for _, more := range []string{"-wal", "-shm"} {
		if st, err := os.Stat(path + more); err == nil && more == "-wal" && st.Size() > 0 {
			return errors.New("somebody else has the database open")
		}
		if err := os.Remove(path + more); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(to, path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	s.db, err = connect(path, "WAL", toDisk)
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
