package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Folder is where the ledgers of boxes that last are, a file for each by the box's
// ID. It is safe for concurrent use with different IDs.
type Folder struct{ dir string }

// OpenFolder opens or makes a folder.
func OpenFolder(dir string) (*Folder, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cannot make folder for ledgers: %w", err)
	}
	st, err := os.Lstat(dir)
	if err == nil && (!st.IsDir() || st.Mode().Perm()&0o077 != 0 || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid())) {
		err = fmt.Errorf("%s is not a folder that is this user's alone", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use folder for ledgers: %w", err)
	}
	return &Folder{dir}, nil
}

func (d *Folder) path(id box.ID) string { return filepath.Join(d.dir, string(id)) }

// File opens a box's ledger, or makes one that begins with names; see [Names].
func (d *Folder) File(id box.ID, names []byte) (*os.File, error) {
	f, err := open(d.path(id), unix.O_RDWR)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	// It has its name when it is whole.
	part := d.path(id) + partly
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot make ledger: %w", err)
	}
	f, err = open(part, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, err
	}
	if err = errors.Join(Make(f), Begin(f, names)); err == nil {
		err = os.Rename(part, d.path(id))
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(part), f.Close())
	}
	return f, nil
}

const partly = ".new"

func open(name string, flags int) (*os.File, error) {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "cannot open ledger", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Remove removes a box's ledger. It is no error if there is none.
func (d *Folder) Remove(id box.ID) error {
	if err := os.Remove(d.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot remove ledger: %w", err)
	}
	return nil
}

// Sweep removes all but the ledgers of boxes that keep says are there.
func (d *Folder) Sweep(keep func(box.ID) bool) error {
	all, err := os.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("cannot list ledgers: %w", err)
	}
	for _, e := range all {
		if !keep(box.ID(e.Name())) {
			err = errors.Join(err, d.Remove(box.ID(e.Name())))
		}
	}
	return err
}

// Memory returns a file for the ledger of a box that ends with this process.
func Memory(names []byte) (*os.File, error) {
	f, err := host.Memory("ledger", nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(Make(f), Begin(f, names)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
