// Package snapshot keeps copies of boxes, and hands back only what it was given.
//
// A snapshot is a manifest and parts. The manifest says of whom, of which kind,
// what is needed to use it, and the size and digest of each part; its own digest
// is the snapshot's ID. So whoever knows the ID knows every byte, and a part that
// several snapshots have is kept once. Nothing in here can read a part: that is
// the tier's.
//
// Two things are hard. A crash at any moment leaves no half snapshot: what is
// being written has a temporary name, is on the disk before it gets its own, and
// the manifest comes last. And a part must be at its use what it was at its
// check: it is compared on the descriptor that is then used, under a lease that
// tells if anybody opens the file for writing; where there are no leases, what is
// compared is a copy that has no name.
package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// fresh begins the name of what is being written.
const fresh = ".new-"

// Store is a folder of snapshots. It is safe for concurrent use; one process has
// it at a time.
type Store struct {
	dir   string
	lock  *os.File
	lease func(*os.File) error

	mu      sync.RWMutex   // held for writing while names come or go
	uses    map[string]int // manifests that need a part, by its digest
	keepAll bool           // a manifest was not or cannot be read: what it needs is not known
}

// lockTime is how long the folder is asked for. Who opens it owns the state folder,
// so what has this lock is at most a last child of a daemon that was killed,
// between closing that lock and this one: see host.LockAfter.
const lockTime = time.Second

// Open opens or makes a store in dir, and removes what was never finished. dir
// must be the caller's alone. Until Sweep was called no part goes.
func Open(dir string) (*Store, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, box.Errorf(box.Unusable, "open snapshots", "cannot make folder for snapshots: %w", err)
	}
	st, err := os.Lstat(dir)
	if err == nil && (!st.IsDir() || st.Mode().Perm()&0o077 != 0 || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid())) {
		err = fmt.Errorf("%s is not a folder that is this user's alone", dir)
	}
	var lock *os.File
	if err == nil {
		lock, err = host.LockAfter(dir, lockTime, func() bool { return true })
	}
	if err != nil {
		return nil, box.Errorf(box.Unusable, "open snapshots", "cannot use folder for snapshots: %w", err)
	}
	s := &Store{dir: dir, lock: lock, lease: host.LeaseRead, uses: map[string]int{}}
	if err := s.clear(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) clear() error {
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		s.keepAll = s.keepAll || isHex(name) // until Sweep has counted
		if strings.HasPrefix(name, fresh) {
			if err := os.Remove(s.path(name)); err != nil {
				return fmt.Errorf("cannot remove a snapshot that was not finished: %w", err)
			}
		}
	}
	return nil
}

// Close gives the folder up.
func (s *Store) Close() error { return s.lock.Close() }

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Store) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read folder of snapshots: %w", err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

// Sweep is for a start: it removes snapshots that are not known and parts that no
// manifest needs, and returns what it removed. A known snapshot whose manifest
// cannot be read keeps every part: it is told in the error, which is no reason not
// to go on. Files of other names are not touched.
func (s *Store) Sweep(known func(id string) bool) (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	s.uses, s.keepAll = map[string]int{}, false
	var errs []error
	remove := func(name string) {
		if err := os.Remove(s.path(name)); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove what nobody needs of a snapshot: %w", err))
			return
		}
		removed = append(removed, name)
	}
	for _, name := range names {
		hex, ok := strings.CutSuffix(name, manifestSuffix)
		switch {
		case !ok || !isHex(hex):
		case !known(idPrefix + hex):
			remove(name)
		default:
			m, err := s.manifest(idPrefix + hex)
			if err != nil {
				s.keepAll = true
				errs = append(errs, err)
			}
			s.count(m, 1)
		}
	}
	for _, name := range names {
		if isHex(name) && s.uses[name] == 0 && !s.keepAll {
			remove(name)
		}
	}
	return removed, errors.Join(append(errs, s.sync())...)
}

// count notes that a manifest's parts are needed, or no more.
func (s *Store) count(m manifest, by int) {
	for _, p := range m.Parts {
		if s.uses[p.SHA256] += by; s.uses[p.SHA256] <= 0 {
			delete(s.uses, p.SHA256)
		}
	}
}

// Delete removes a snapshot and the parts that only it needs. Whoever has it open
// keeps what he has. One that is not there is no error.
func (s *Store) Delete(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	hex, ok := hexOf(id)
	if !ok {
		return nil
	}
	m, err := s.manifest(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.keepAll = true // until the next start, which does not find the manifest
	}
	if err := os.Remove(s.path(hex + manifestSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove snapshot %s: %w", id, err)
	}
	errs := []error{s.sync()}
	s.count(m, -1)
	for _, p := range m.Parts {
		if s.uses[p.SHA256] == 0 && !s.keepAll {
			if err := os.Remove(s.path(p.SHA256)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("cannot remove a part of snapshot %s: %w", id, err))
			}
		}
	}
	return errors.Join(errs...)
}

// sync writes the names in the folder through.
func (s *Store) sync() error {
	if err := s.lock.Sync(); err != nil {
		return fmt.Errorf("cannot write folder of snapshots through: %w", err)
	}
	return nil
}

// full makes the error of a disk without room one that a caller understands.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return box.Errorf(box.Exhausted, "keep snapshot", "cannot keep snapshot: the disk for snapshots is full: %w", err).
			WithHint("delete snapshots that are not needed any more, or tell the operator")
	}
	return fmt.Errorf("cannot keep snapshot: %w", err)
}

func isHex(s string) bool { return regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(s) }
