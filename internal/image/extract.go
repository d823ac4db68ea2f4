package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// Tree returns a folder with the image's files, for a caller who cannot mount
// the image, and makes it if the store has none. The folder is open; its Name
// is its path; as long as it is open, [Store.Remove] and [Store.Prune] leave it
// alone, so keep it open while a box uses it.
//
// Contents, names, links and times of files and folders are the image's.
// Everything belongs to the caller, who can give nothing away; nothing has a
// write, setuid, setgid or sticky bit; the owner may read every file and enter
// every folder. A box must see it through a read-only mount: its owner could
// change modes otherwise.
//
// Making it copies the image's bytes once (a file system that can share them,
// does), into a folder that gets its name when it is complete. Concurrent
// callers, also in other processes, wait for the first. What the check on each
// use is worth is said at [Store.VerifyTree]; a folder that fails it is made
// again, which progress is told of. progress may be nil.
func (s *Store) Tree(ctx context.Context, img *Image, progress Progress) (*os.File, error) {
	if progress == nil {
		progress = func(int64, int64, string) {}
	}
	f, err := s.tree(ctx, img, progress)
	if err != nil && box.KindOf(err) == box.Fault && ctx.Err() == nil {
		err = box.Errorf(box.Fault, "extract image", "%w", err)
	}
	return f, short("extract image", err)
}

func (s *Store) tree(ctx context.Context, img *Image, progress Progress) (*os.File, error) {
	if f, err := s.openTree(img.Digest); err == nil {
		if s.judge(f, img.Digest) == nothing {
			return f, nil
		}
		f.Close()
	}
	if err := makeDir(s.treePath(""), 0o711); err != nil {
		return nil, fmt.Errorf("cannot extract image: %w", err)
	}
	progress(0, 0, "waiting for another builder")
	unlock, err := s.lock(ctx, "tree-"+string(img.Name))
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := s.openTree(img.Digest)
	if err == nil {
		if err = s.verify(ctx, f, img, s.judge(f, img.Digest), progress); err == nil {
			return f, nil
		}
		f.Close()
		if ctx.Err() != nil {
			return nil, err
		}
		progress(0, 0, "making the extracted tree again: "+err.Error())
		switch rerr := s.removeTree(img.Digest); {
		case box.KindOf(rerr) == box.Exhausted:
			return nil, fmt.Errorf("%w; a box is using it", err)
		case rerr != nil:
			return nil, rerr
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.extract(ctx, img, progress); err != nil {
		return nil, err
	}
	return s.openTree(img.Digest)
}

// treePath names the tree of a digest, and the folder of all trees for "".
func (s *Store) treePath(digest string) string {
	return filepath.Join(s.dir, "trees", strings.TrimPrefix(digest, prefix))
}

// openTree opens a tree and takes a shared lock on it. It is ErrNotExist if
// there is none, or if it is just being removed.
func (s *Store) openTree(digest string) (*os.File, error) {
	name := s.treePath(digest)
	f, err := openDir(name)
	if err != nil {
		return nil, fmt.Errorf("cannot open extracted tree: %w", err)
	}
	if !lockDir(f, syscall.LOCK_SH) {
		f.Close()
		return nil, fmt.Errorf("cannot open extracted tree: %w", fs.ErrNotExist)
	}
	named, err := os.Lstat(name)
	if opened, oerr := f.Stat(); err != nil || oerr != nil || !os.SameFile(named, opened) {
		f.Close()
		return nil, fmt.Errorf("cannot open extracted tree: %w", fs.ErrNotExist)
	}
	return f, nil
}

func openDir(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
}

// lockDir locks an open folder until it is closed, and reports whether it could.
// File systems without such locks get none: then nothing protects a tree in use.
func lockDir(f *os.File, how int) bool {
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	return !errors.Is(err, syscall.EWOULDBLOCK)
}

// release gives up a lock at once. To close its file is not enough: a child that
// is being forked by another thread has the file, too, until it executes, and
// with it the lock (flock(2)).
func release(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	f.Close()
}

// extract makes the tree. The caller holds the builders' lock.
func (s *Store) extract(ctx context.Context, img *Image, progress Progress) error {
	if err := s.sweepTrees(); err != nil {
		return err
	}
	tmp, lock, err := s.newTemp()
	if err != nil {
		return fmt.Errorf("cannot extract image: %w", err)
	}
	defer release(lock)
	if err := s.fill(ctx, tmp, img, progress); err != nil {
		return errors.Join(err, removeTreeAt(tmp))
	}
	if err := os.Rename(tmp, s.treePath(img.Digest)); err != nil {
		return errors.Join(fmt.Errorf("cannot extract image: %w", err), removeTreeAt(tmp))
	}
	return s.sealTree(lock, img.Digest, 0)
}

// newTemp makes a folder that nobody sweeps away while it is locked.
func (s *Store) newTemp() (name string, lock *os.File, err error) {
	for {
		name, err := os.MkdirTemp(s.treePath(""), "tmp-*")
		if err != nil {
			return "", nil, err
		}
		f, err := openDir(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // swept away before it was locked
		}
		if err != nil {
			return "", nil, err
		}
		if lockDir(f, syscall.LOCK_EX) {
			named, err := os.Lstat(name)
			if opened, oerr := f.Stat(); err == nil && oerr == nil && os.SameFile(named, opened) {
				return name, f, nil
			}
		}
		f.Close()
	}
}

// fill writes the image's files into a new, empty folder.
func (s *Store) fill(ctx context.Context, dir string, img *Image, progress Progress) error {
	// Its own descriptor, whose offset nobody else moves.
	src, err := os.Open(host.FDPath(img.File.Fd()))
	if err != nil {
		return fmt.Errorf("cannot extract image: %w", err)
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return fmt.Errorf("cannot extract image: %w", err)
	}
	at, err := newDescent(dir, func(d *folder) error {
		// The last thing that happens to a folder: it closes behind us.
		if err := d.root.Chmod(".", treeMode(d.entry.Mode)); err != nil {
			return err
		}
		return d.root.Chtimes(".", d.entry.MTime, d.entry.MTime)
	})
	if err != nil {
		return fmt.Errorf("cannot extract image: %w", err)
	}
	defer at.close()
	var done, told int64
	err = erofs.Walk(src, func(e erofs.Entry, contents io.Reader) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		parent, err := at.parent(e)
		if err != nil {
			return err
		}
		name := path.Base(e.Path)
		switch {
		case e.Path == "/":
			return nil
		case e.Mode.IsDir():
			if err := parent.root.Mkdir(name, 0o700); err != nil {
				return err
			}
			return at.enter(e)
		case e.Mode.Type() == fs.ModeSymlink:
			return parent.root.Symlink(e.Link, name)
		}
		if err := copyFile(parent.root, name, src, e, contents.(*io.SectionReader)); err != nil {
			return err
		}
		if done += e.Size; done-told >= 1<<20 {
			told = done
			progress(done, info.Size(), e.Path)
		}
		return nil
	})
	if err == nil {
		err = at.leave("")
	}
	if err != nil {
		return fmt.Errorf("cannot extract image: %w", err)
	}
	return nil
}

// copyFile makes a file. The kernel copies: both ends are files.
func copyFile(dir *os.Root, name string, src *os.File, e erofs.Entry, contents *io.SectionReader) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if e.Size > 0 {
		_, off, n := contents.Outer()
		if _, err = src.Seek(off, io.SeekStart); err == nil {
			_, err = io.CopyN(f, src, n)
		}
	}
	err = errors.Join(err, f.Chmod(treeMode(e.Mode)), f.Close())
	if err != nil {
		return err
	}
	return dir.Chtimes(name, e.MTime, e.MTime)
}

// treeMode is the mode that a file or folder of an image has in a tree.
func treeMode(m fs.FileMode) fs.FileMode {
	if m.IsDir() {
		return m.Perm()&^0o222 | 0o500
	}
	return m.Perm()&^0o222 | 0o400
}
