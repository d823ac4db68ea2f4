// Package volume keeps the files that volumes lie in, one for each, and hands one
// out with its lock.
//
// A file has no name that anybody chose: whose it is and what it is called says the
// database alone. It is a file system (package blockfs), and mounting it is a
// tier's. Two things are decided here.
//
// Who has a volume. One box may write, or any number may read. The lock of flock(2)
// says so, not a note: the kernel of the host holds it for as long as the file
// system is mounted, through the loop device, and lets it go with the last mount.
// So a daemon that is killed takes nobody's volume away, and a box that is killed
// keeps none.
//
// What a crash leaves. A file that is being made ends in ".new", and one that is
// being deleted in ".gone". The row comes between: it is written when the new file
// is whole and on the disk, and removed when the old one has lost its name. At the
// next start (Sweep) a row decides what becomes of either. A file with a name of its
// own was somebody's once, so it is never removed for want of a row: a database that
// was replaced by an older one would cost its tenants their data.
package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
)

const (
	op   = "use volume"
	made = ".new"
	gone = ".gone"
)

// settle is how long the kernel has to take down what a box that has ended left
// mounted, which may have to be written out before. Whoever wants a volume that
// something has waits for patience.
const (
	settle   = 10 * time.Second
	patience = 3 * time.Second
)

// Store is a folder of volumes. It is safe for concurrent use; one process has it
// at a time.
type Store struct {
	dir  string
	lock *os.File
}

// lockTime is how long the folder is asked for: see host.LockAfter. Who opens it
// owns the state folder.
const lockTime = time.Second

// Open opens or makes a store in dir, which must be the caller's alone.
func Open(dir string) (*Store, error) {
	const op = "open volumes"
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, box.Errorf(box.Unusable, op, "cannot make folder for volumes: %w", err)
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
		return nil, box.Errorf(box.Unusable, op, "cannot use folder for volumes: %w", err)
	}
	return &Store{dir, lock}, nil
}

// Close lets another process have the folder. Volumes that boxes have are theirs.
func (s *Store) Close() error { return s.lock.Close() }

// Usable is nil, or says as Unsupported why no volume can be used here.
func (s *Store) Usable() error {
	if host.IsRoot() {
		return nil
	}
	return box.Errorf(box.Unsupported, op, "cannot use volumes: mounting one takes a loop device, which an ordinary user does not get").
		WithHint("run the daemon as root; or keep what is needed in snapshots")
}

// NewFile is a name for a file of [Store.Make].
func NewFile() string { return strings.ToLower(rand.Text()) }

func isFile(name string) bool { return regexp.MustCompile(`^[a-z2-7]{26}$`).MatchString(name) }

func (s *Store) path(file, suffix string) (string, error) {
	if !isFile(file) {
		return "", fmt.Errorf("cannot use volume: %.80q is no name of a file", file)
	}
	return filepath.Join(s.dir, file+suffix), nil
}

func (s *Store) rename(file, from, to string) error {
	a, err := s.path(file, from)
	if err != nil {
		return err
	}
	if err := os.Rename(a, filepath.Join(s.dir, file+to)); err != nil {
		return fmt.Errorf("cannot rename the file of a volume: %w", err)
	}
	return s.sync()
}

// sync brings the folder's names to the disk.
func (s *Store) sync() error {
	d, err := os.Open(s.dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot write out the folder of volumes: %w", err)
	}
	return nil
}

// Make makes the file of a volume of so many bytes, with all its room: see
// [blockfs.MakeVolume] for what is refused. It is on the disk, and nobody's until a
// row has it and [Store.Name] was called. What fails leaves nothing.
func (s *Store) Make(file string, bytes int64) error {
	name, err := s.path(file, made)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make the file of a volume: %w", err)
	}
	if err = errors.Join(blockfs.MakeVolume(f, bytes), f.Close()); err == nil {
		err = s.sync()
	}
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	fault.Here("volume.made")
	return nil
}

// Name lets the file of a row be used.
func (s *Store) Name(file string) error {
	err := s.rename(file, made, "")
	fault.Here("volume.named")
	return err
}

// Doom takes a file its name, before its row goes. Undo is [Store.Spare].
func (s *Store) Doom(file string) error {
	err := s.rename(file, "", gone)
	fault.Here("volume.doomed")
	return err
}

// Spare gives a doomed file its name again.
func (s *Store) Spare(file string) error { return s.rename(file, gone, "") }

// Remove removes a file that is new or doomed; if there is none, that is no error.
// Its room is free when no box has it mounted any more.
func (s *Store) Remove(file string) error {
	var errs []error
	for _, suffix := range []string{made, gone} {
		name, err := s.path(file, suffix)
		if err == nil {
			err = os.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot remove the file of a volume: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Allocated is how much of the host's disk a file takes, in bytes; -1 if that is not
// known.
func (s *Store) Allocated(file string) int64 {
	f, err := s.open(file)
	if err != nil {
		return -1
	}
	defer f.Close()
	return host.Allocated(f)
}

func (s *Store) open(file string) (*os.File, error) {
	name, err := s.path(file, "")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, box.Errorf(box.Unusable, op, "cannot use volume: its file %s is gone", file)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the file of a volume: %w", err)
	}
	return f, nil
}

// Take opens a file for a tier to mount, with its lock: exclusive, or shared for
// reading. One whose host stopped while it was mounted is made whole before it is
// read. Closing what is returned gives the lock back, unless it is mounted.
//
// Errors are Conflict if something has the lock and keeps it for some seconds, and
// Unusable if it is gone or damaged. It may block for these seconds.
func (s *Store) Take(ctx context.Context, file string, bytes int64, readOnly bool) (*os.File, error) {
	f, err := s.open(file)
	if err != nil {
		return nil, err
	}
	err = within(ctx, patience, func() (bool, error) { return take(f, bytes, readOnly) })
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Lock takes the lock of a file that is to be deleted, damaged or not, as Take does;
// nil if the file is gone.
func (s *Store) Lock(ctx context.Context, file string) (*os.File, error) {
	f, err := s.open(file)
	if box.KindOf(err) == box.Unusable {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := within(ctx, patience, func() (bool, error) { return host.TryLock(f, true) }); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Settle waits until the kernel has given back the lock of a box that wrote and has
// ended: until then not all of it is on the disk.
func (s *Store) Settle(ctx context.Context, file string) error {
	f, err := s.open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return within(ctx, settle, func() (bool, error) { return host.TryLock(f, false) })
}

// within tries until it is done, for so long.
func within(ctx context.Context, most time.Duration, try func() (bool, error)) error {
	end := time.NewTimer(most)
	defer end.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot use volume: %w", ctx.Err())
		case <-end.C:
			return box.Errorf(box.Conflict, op, "cannot use volume: something has it, which is no box that is known here")
		case <-tick.C:
		}
	}
}

// take tries once. A reader takes the whole lock first, if it can: whoever finds the
// volume as a crash left it makes it whole, and others must not look meanwhile.
func take(f *os.File, bytes int64, readOnly bool) (bool, error) {
	whole, err := host.TryLock(f, true)
	if err != nil || !whole && !readOnly {
		return false, err
	}
	if !whole {
		shared, err := host.TryLock(f, false)
		if err != nil || !shared {
			return false, err
		}
	}
	replay, err := blockfs.CheckVolume(f, bytes)
	switch {
	case err != nil || !readOnly:
		return err == nil, err
	case replay && !whole:
		return false, host.Unlock(f) // the next try finds it whole, or alone
	case replay:
		if err := blockfs.ReplayVolume(f); err != nil {
			return false, err
		}
		if replay, err = blockfs.CheckVolume(f, bytes); err != nil || replay {
			return false, err // the kernel may still be at it
		}
	}
	return host.TryLock(f, false)
}

// Sweep puts right what a crash left: files that were being made or deleted are
// finished if a row has them, and removed if not. It returns what was removed, and
// what is there that no row knows, which is left. It is called before anything else.
func (s *Store) Sweep(known func(file string) bool) (removed, strange []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list volumes: %w", err)
	}
	var errs []error
	for _, e := range entries {
		file, suffix := e.Name(), ""
		for _, end := range []string{made, gone} {
			if before, ok := strings.CutSuffix(file, end); ok {
				file, suffix = before, end
			}
		}
		switch {
		case !isFile(file) || suffix == "" && !known(file):
			strange = append(strange, e.Name())
		case suffix == "":
		case known(file):
			errs = append(errs, s.rename(file, suffix, ""))
		default:
			removed = append(removed, e.Name())
			errs = append(errs, s.Remove(file))
		}
	}
	return removed, strange, errors.Join(errs...)
}
