package hostfs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is a folder of the host into which results are written, under names that
// a hostile program chose and while that program's friends may be at work in
// the folder. Safe for concurrent use.
type Dir struct{ f *os.File }

// OpenDir opens an existing folder. Links in path are the caller's own and are
// followed, once.
func OpenDir(path string) (*Dir, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open output folder: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	return &Dir{os.NewFile(uintptr(fd), path)}, nil
}

// Name returns the path given to [OpenDir].
func (d *Dir) Name() string { return d.f.Name() }

// Close lets go of the folder. Files under way are not affected.
func (d *Dir) Close() error { return d.f.Close() }

// CheckName reports why rel cannot name a file below a folder: it must be
// relative, at most 4095 bytes, of components of 1 to 255 bytes that are
// neither "." nor "..", and free of NUL. Any other byte is allowed, as it is in
// Linux.
func CheckName(rel string) error {
	switch {
	case rel == "":
		return errors.New("empty name")
	case len(rel) > 4095:
		return errors.New("name is longer than 4095 bytes")
	case strings.HasPrefix(rel, "/"):
		return errors.New("absolute name")
	case strings.Contains(rel, "\x00"):
		return errors.New("name with a NUL byte")
	}
	for c := range strings.SplitSeq(rel, "/") {
		switch {
		case c == "" || c == ".":
			return errors.New("empty component in name")
		case c == "..":
			return errors.New("name leaves its folder")
		case len(c) > 255:
			return errors.New("component is longer than 255 bytes")
		}
	}
	return nil
}

// File is a result being written. It has a temporary name until Commit.
type File struct {
	*os.File
	parent *os.File
	temp   string
	base   string
}

// Create starts a file below the folder, with missing parents (mode 0755). Only
// the permission bits of mode count. A link in any component, and a last
// component that exists and is not a regular file with a single name, are
// errors. The caller ends it with Commit or Abort.
//
// Each component is opened from its parent's descriptor without following
// links, so no swap of a component can lead out of the folder.
func (d *Dir) Create(rel string, mode fs.FileMode) (*File, error) {
	f, err := d.create(rel, mode)
	if err != nil {
		return nil, fmt.Errorf("cannot create %q in %s: %w", rel, d.Name(), err)
	}
	return f, nil
}

func (d *Dir) create(rel string, mode fs.FileMode) (*File, error) {
	if err := CheckName(rel); err != nil {
		return nil, err
	}
	parts := strings.Split(rel, "/")
	base := parts[len(parts)-1]
	parent, err := openBeneath(d.f, ".")
	if err != nil {
		return nil, err
	}
	for _, c := range parts[:len(parts)-1] {
		next, err := stepInto(parent, c)
		parent.Close()
		if err != nil {
			return nil, err
		}
		parent = next
	}
	if err := replaceable(parent, base); err != nil {
		parent.Close()
		return nil, err
	}
	temp := ".sunaba-" + rand.Text()
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(parent.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		parent.Close()
		return nil, err
	}
	f := &File{os.NewFile(uintptr(fd), rel), parent, temp, base}
	if err := f.Chmod(mode & 0o777); err != nil {
		f.Abort()
		return nil, err
	}
	return f, nil
}

// stepInto opens a folder in parent, making it if it is missing.
func stepInto(parent *os.File, name string) (*os.File, error) {
	err := unix.Mkdirat(int(parent.Fd()), name, 0o755)
	if err != nil && err != unix.EEXIST {
		return nil, err
	}
	return openBeneath(parent, name)
}

// openBeneath opens a folder by a single component, which may not be a link.
func openBeneath(parent *os.File, name string) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return nil, fmt.Errorf("%q is not a folder: %w", name, err)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// replaceable refuses to write over anything that is more than a file of its
// own: a link would lose what it stands for, and a file with a second name may
// be somebody else's.
func replaceable(parent *os.File, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(parent.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("the name is taken by something that is not a regular file")
	case st.Nlink != 1:
		return errors.New("the name is taken by a file with several names")
	}
	return nil
}

// Commit gives the file its name, in one step, and closes it. On an error the
// file is gone and what had the name before is unchanged, unless somebody else
// moved things in the folder at the same moment, which is an error too.
func (f *File) Commit() error {
	defer f.parent.Close()
	err := f.commit()
	if err != nil {
		unix.Unlinkat(int(f.parent.Fd()), f.temp, 0)
	}
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("cannot finish %q: %w", f.Name(), err)
	}
	return nil
}

func (f *File) commit() error {
	dir := int(f.parent.Fd())
	if err := replaceable(f.parent, f.base); err != nil {
		return err
	}
	// rename(2) follows no link in the last component, old or new.
	if err := unix.Renameat(dir, f.temp, dir, f.base); err != nil {
		return err
	}
	var named, ours unix.Stat_t
	if err := unix.Fstatat(dir, f.base, &named, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := unix.Fstat(int(f.Fd()), &ours); err != nil {
		return err
	}
	if named.Dev != ours.Dev || named.Ino != ours.Ino {
		return errors.New("somebody else changed the folder meanwhile")
	}
	return nil
}

// Abort drops the file.
func (f *File) Abort() {
	unix.Unlinkat(int(f.parent.Fd()), f.temp, 0)
	f.File.Close()
	f.parent.Close()
}
