package hostfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RemoveTree removes a file or folder with everything below it; a path that
// does not exist is no error. It goes by descriptors, so that nothing outside
// is touched whatever links are swapped in meanwhile; it does not recurse and
// holds two descriptors and about 100 bytes a level, so that a chain of 20,000
// folders is no trouble; it does not enter mounted file systems (EXDEV or EBUSY
// then, and they stay). Links in path before the last component are the
// caller's own. When ctx ends it stops, with part of the tree gone.
func RemoveTree(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	parent, _, err := openHandle(filepath.Dir(path), unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer parent.Close()
	return RemoveTreeAt(ctx, parent, filepath.Base(path))
}

// RemoveTreeAt is [RemoveTree] for one component in an open folder.
func RemoveTreeAt(ctx context.Context, parent *os.File, name string) error {
	if err := CheckName(name); err != nil || filepath.Base(name) != name {
		return fmt.Errorf("cannot remove %q: not a single component", name)
	}
	for {
		gone, err := unlink(int(parent.Fd()), name)
		if err == nil && !gone {
			// Again if somebody is still writing there, as long as ctx lasts.
			if err = clearFolder(ctx, int(parent.Fd()), name); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("cannot remove %s/%s: %w", parent.Name(), name, err)
		}
		return nil
	}
}

// level is a folder on the way from the top to where we are.
type level struct {
	name     string
	dev, ino uint64
	todo     []string // folders in it that were not empty when last seen
}

// batch is how many names are read at a time. A level holds on to no more.
const batch = 128

// clearFolder removes what is in a folder.
func clearFolder(ctx context.Context, parent int, name string) error {
	cur, here, err := enter(parent, name)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { cur.Close() }()
	stack := []level{here}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		top := &stack[len(stack)-1]
		if len(top.todo) == 0 {
			if top.todo, err = clearBatch(cur); err != nil {
				return err
			}
		}
		if n := len(top.todo); n > 0 { // down
			child := top.todo[n-1]
			top.todo = top.todo[:n-1]
			next, here, err := enter(int(cur.Fd()), child)
			if err == unix.ENOENT {
				continue
			}
			if err != nil {
				return err
			}
			cur.Close()
			cur = next
			stack = append(stack, here)
			continue
		}
		if len(stack) == 1 {
			return nil
		}
		// Up. The folder above must be the one we came from: if ours was
		// moved elsewhere, that place is not ours to clear.
		above := stack[len(stack)-2]
		up, err := reopen(cur, above)
		if err != nil {
			return err
		}
		cur.Close()
		cur = up
		name := top.name
		stack = stack[:len(stack)-1]
		err = unix.Unlinkat(int(cur.Fd()), name, unix.AT_REMOVEDIR)
		if err != nil && err != unix.ENOENT && err != unix.ENOTEMPTY {
			return err
		}
		// ENOTEMPTY: filled again meanwhile. It will be read again, as long
		// as ctx lasts.
	}
}

// clearBatch removes files and empty folders until the folder is empty or some
// folders that are not empty have come up, and returns those.
func clearBatch(dir *os.File) ([]string, error) {
	var full []string
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	for len(full) == 0 {
		names, err := dir.Readdirnames(batch)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(names) == 0 {
			return nil, nil
		}
		for _, n := range names {
			gone, err := unlink(int(dir.Fd()), n)
			if err != nil {
				return nil, err
			}
			if !gone {
				full = append(full, n)
			}
		}
	}
	return full, nil
}

// unlink removes a name. It reports false for a folder that is not empty.
func unlink(dir int, name string) (gone bool, err error) {
	_, err = retry(func() (int, error) { return 0, unix.Unlinkat(dir, name, 0) })
	if err == unix.EISDIR {
		_, err = retry(func() (int, error) { return 0, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
	}
	switch err {
	case nil, unix.ENOENT:
		return true, nil
	case unix.ENOTEMPTY, unix.EEXIST:
		return false, nil
	}
	return false, err
}

// enter opens a folder that is not a link and not a mount point, and makes sure
// that its content can be removed by an ordinary user who owns it.
func enter(dir int, name string) (*os.File, level, error) {
	f, err := openInside(dir, name, unix.O_RDONLY)
	if err == unix.EACCES {
		if err = unlock(dir, name); err == nil {
			f, err = openInside(dir, name, unix.O_RDONLY)
		}
	}
	if err != nil {
		return nil, level{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, level{}, err
	}
	if st.Mode&0o700 != 0o700 {
		if err := f.Chmod(0o700); err != nil {
			f.Close()
			return nil, level{}, err
		}
	}
	return f, level{name: name, dev: st.Dev, ino: st.Ino}, nil
}

func openInside(dir int, name string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := retry(func() (int, error) { return unix.Openat2(dir, name, &how) })
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// unlock makes a folder that we may not read ours again.
func unlock(dir int, name string) error {
	f, err := openInside(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	// chmod through the descriptor's own link: no name is involved.
	return unix.Chmod(procPath(f), 0o700)
}

// reopen opens the folder above cur and checks that it is the expected one.
func reopen(cur *os.File, want level) (*os.File, error) {
	up, err := openBeneath(cur, "..")
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(up.Fd()), &st); err != nil {
		up.Close()
		return nil, err
	}
	if st.Dev != want.dev || st.Ino != want.ino {
		up.Close()
		return nil, errors.New("a folder was moved while its tree was being removed")
	}
	return up, nil
}
