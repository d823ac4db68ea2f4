// Package store keeps what must outlive the daemon: which boxes there are and
// were, who may speak to it, and which requests were answered already.
//
// It is one SQLite file in the state folder, written through before a step is
// taken, so that after a crash at any moment the file says at least as much as
// the host holds: a box without a row is nobody's and is destroyed. One process
// has it at a time.
//
// What is in a row is what [box.Record] says; nothing in here knows how a box is
// made. Methods are safe for concurrent use.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite" // and the driver "sqlite"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// fileName is the database in the state folder; SQLite keeps two more files
// beside it.
const fileName = "sunaba.db"

// markName is a file in the daemon's folder that says that there was a database:
// one that is gone, or has nothing in it, is then no beginning.
const markName = "made"

// pidName is a file in the daemon's folder, for the words of whoever comes second.
// Whose the folder is is a matter of the lock alone.
const pidName = "pid"

// ownTime is how long a folder is asked for whose daemon is dead, and has left
// its lock to something that it was about to start.
const ownTime = 10 * time.Second

const op = "open store"

// Store is an open database.
type Store struct {
	dir   string
	db    *sql.DB
	boxes *sql.DB // to the same, for what need not outlive the machine: see openBoxes
	lock  *os.File

	// Whoever writes has it. SQLite has one writer at a time, too, but no line: whoever
	// comes looks again and again, and the last one to come most often. On a slow disk one
	// of many would be told after ten seconds that the database is locked.
	writing chan struct{}
}

// Open opens or makes the database in dir, which must be the caller's own
// folder. Errors are a [box.Error]: Unusable if another process has it, if it
// was made by a later version, or if it is damaged; the hint says what to do. A
// damaged database is never changed.
func Open(ctx context.Context, dir string) (*Store, error) {
	lock, err := own(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, lock: lock, writing: make(chan struct{}, 1)}
	if err := s.open(ctx, filepath.Join(dir, fileName)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// own takes the folder for this process, until it ends.
func own(dir string) (*os.File, error) {
	path := filepath.Join(dir, "daemon")
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, box.Errorf(box.Unusable, op, "cannot use state folder: %w", err)
	}
	owner := filepath.Join(path, pidName)
	holder := func() string { // empty while it starts
		b, _ := os.ReadFile(owner)
		return strings.TrimSpace(string(b))
	}
	lock, err := host.LockAfter(path, ownTime, func() bool {
		pid, err := strconv.Atoi(holder())
		return err == nil && host.Dead(pid)
	})
	if err != nil {
		return nil, box.Errorf(box.Unusable, op, "cannot use state folder %s: another daemon has it, process %.10s (%v)", dir, holder(), err).
			WithHint("end that one, or name another folder with --state")
	}
	f, err := os.OpenFile(owner, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
		err = errors.Join(err, f.Close())
	}
	if err != nil && !host.IsShortage(err) { // on a full disk nobody is told who has it
		lock.Close()
		return nil, box.Errorf(box.Unusable, op, "cannot use state folder: %w", err)
	}
	return lock, nil
}

func (s *Store) open(ctx context.Context, path string) error {
	mark := filepath.Join(filepath.Dir(path), "daemon", markName)
	if err := lost(path, mark); err != nil {
		return err
	}
	fresh := false
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		fresh = true
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return box.Errorf(box.Unusable, op, "cannot make database: %w", err)
	}
	if s.db, err = connect(path, "WAL", toDisk); err != nil {
		return box.Errorf(box.Fault, op, "cannot open database: %w", err)
	}
	if !fresh {
		if err := s.check(ctx, path); err != nil {
			return err
		}
	}
	if err := s.migrate(ctx, path, fresh); err != nil {
		return err
	}
	if err := s.openBoxes(ctx, path); err != nil {
		return box.Errorf(box.Fault, op, "cannot open database: %w", err)
	}
	f, err = os.OpenFile(mark, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return box.Errorf(box.Unusable, op, "cannot note that there is a database: %w", err)
	}
	return nil
}

// lost refuses to begin anew where something was before: boxes that no row knows
// are destroyed.
func lost(path, mark string) error {
	if _, err := os.Stat(mark); err != nil {
		return nil
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errGone
	case err == nil && st.Size() == 0:
		err = errEmpty
	}
	if err == nil {
		return nil
	}
	return box.Errorf(box.Unusable, op, "cannot use database %s: %w, and there was one before", path, err).WithHint("%s", adviceDamaged)
}

// escape makes a path fit for a URI of SQLite's.
func escape(path string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
}

// How far a commit goes before it returns (sqlite.org/pragma.html#pragma_synchronous):
// through to the disk, or to the kernel, which keeps it whatever becomes of this
// process, but not if the machine loses power.
const (
	toDisk   = "FULL"
	toKernel = "NORMAL"
)

// connect opens a database with a journal of some kind. WAL keeps readers from
// waiting for writers. What a row loses is overwritten in the file, since it may have
// been somebody's key; the journal has it until it is begun anew.
func connect(path, journal, through string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+escape(path)+"?_pragma=journal_mode("+journal+")&_pragma=synchronous("+through+")&_pragma=secure_delete(1)&_pragma=foreign_keys(1)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	// Writers wait for each other anyway, and each connection is three files.
	db.SetMaxOpenConns(4)
	return db, nil
}

// openBoxes opens the connections that write rows of boxes. No box outlives a
// machine that loses power, so its row need not either, and a start of milliseconds
// does not wait for a disk. Only with a WAL is the database whole all the same.
func (s *Store) openBoxes(ctx context.Context, path string) error {
	var journal string
	if err := s.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return err
	}
	through := toDisk
	if journal == "wal" {
		through = toKernel
	}
	var err error
	s.boxes, err = connect(path, journal, through)
	return err
}

// whole reads the whole database. It is small.
func whole(ctx context.Context, db *sql.DB) error {
	var answer string
	err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&answer)
	if err == nil && answer != "ok" {
		err = errors.New(answer)
	}
	return err
}

func (s *Store) check(ctx context.Context, path string) error {
	err := whole(ctx, s.db)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return box.Errorf(box.Unusable, op, "cannot read database %s: %w", path, fmt.Errorf("%w: %w", errDamaged, err)).WithHint("%s", adviceDamaged)
}

// What [Recover] is for.
var (
	errDamaged = errors.New("it is damaged")
	errGone    = errors.New("it is gone")
	errEmpty   = errors.New("it is empty")
)

const adviceDamaged = "put a copy in its place; or, to begin without it, run `sunaba recover`: what is still there of boxes is destroyed at the next start, and keys, snapshots and volumes are no longer known"

// Close gives the database up.
func (s *Store) Close() error {
	var err error
	for _, db := range []*sql.DB{s.boxes, s.db} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return errors.Join(err, s.lock.Close())
}

// change runs fn in a transaction that is on the disk when it returns nil.
func (s *Store) change(ctx context.Context, what string, fn func(*sql.Tx) error) error {
	return s.commit(ctx, s.db, what, fn)
}

// changeBox is change for what matters as long as a box can be there: see openBoxes.
func (s *Store) changeBox(ctx context.Context, what string, fn func(*sql.Tx) error) error {
	return s.commit(ctx, s.boxes, what, fn)
}

func (s *Store) commit(ctx context.Context, db *sql.DB, what string, fn func(*sql.Tx) error) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return fmt.Errorf("cannot %s: %w", what, ctx.Err())
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return full(what, fmt.Errorf("cannot %s: %w", what, err))
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback() // SQLite may have done it; the first error says more
		return full(what, err)
	}
	fault.Here("store.before-commit")
	if err := tx.Commit(); err != nil {
		return full(what, fmt.Errorf("cannot %s: %w", what, err))
	}
	fault.Here("store.after-commit")
	return nil
}

// full turns the error of a disk that has no room into one that a caller
// understands: it passes when somebody makes room.
func full(what string, err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqliteFull {
		return box.Errorf(box.Unavailable, "write database", "cannot %s: the disk of the state folder is full", what).
			WithHint("tell the operator; what runs goes on")
	}
	return err
}

// sqliteFull is SQLITE_FULL (sqlite.org/rescode.html).
const sqliteFull = 13
