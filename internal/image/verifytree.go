package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// treeRecord is what a store knows of an extracted tree beside its files.
type treeRecord struct {
	Root    verified  `json:"root"`      // of the folder itself, and the boot
	Sealed  int64     `json:"sealed_ns"` // nothing in the tree changed later
	Scanned time.Time `json:"scanned"`   // when all of it was looked at last
}

// scanEvery is how long a tree is used without looking at each of its files.
const scanEvery = 10 * time.Minute

// scrutiny is how much of a tree must be looked at before it is used.
type scrutiny int

const (
	everyByte scrutiny = iota
	everyInode
	nothing
)

// VerifyTree checks the extracted tree of an image that is open, and so
// verified, against that image. It is NotFound if there is none, and Fault if
// anything differs.
//
// [Store.Tree] does this on each use: the folder's own inode (number, owner,
// mode, change time) is compared with a record that only the store's owner can
// write; every ten minutes the inode of every file and folder, where a change
// time after the tree was made betrays any change of contents, mode, owner or
// names, in about 50 ms for 20,000 files (full: false); and after a boot, or
// without a record, also every byte (full: true), at the disk's speed.
//
// What this does not see: in between, a file that somebody with the owner's
// rights changed in place, which no cheap check can see and a box has no right
// to do through a read-only mount; and at any time what [Store] does not see
// either.
func (s *Store) VerifyTree(ctx context.Context, img *Image, full bool) error {
	f, err := s.openTree(img.Digest)
	if err != nil {
		kind := box.Fault
		if errors.Is(err, fs.ErrNotExist) {
			kind = box.NotFound
		}
		return box.Errorf(kind, "verify tree", "%w", err)
	}
	defer f.Close()
	level := everyInode
	if full || s.judge(f, img.Digest) == everyByte {
		level = everyByte
	}
	if err := s.verify(ctx, f, img, level, func(int64, int64, string) {}); err != nil {
		return box.Errorf(box.Fault, "verify tree", "%w", err)
	}
	return nil
}

// judge says what of an open tree must be looked at. It takes some
// microseconds.
func (s *Store) judge(f *os.File, digest string) scrutiny {
	r, err := s.treeRecord(digest)
	if err != nil || s.boot == "" {
		return everyByte
	}
	now, _, err := s.stat(f)
	if err != nil || now != r.Root {
		return everyByte
	}
	if age := time.Since(r.Scanned); age < 0 || age > scanEvery {
		return everyInode
	}
	return nothing
}

func (s *Store) treeRecord(digest string) (treeRecord, error) {
	var r treeRecord
	b, _, err := s.readOwn(s.treePath(digest) + recordExt)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

// sealTree records a tree that was just found, or made, right, and in which
// nothing changed after sealed, or after its folder got its name.
func (s *Store) sealTree(f *os.File, digest string, sealed int64) error {
	root, _, err := s.stat(f)
	if err != nil {
		return err
	}
	r := treeRecord{Root: root, Sealed: max(sealed, root.CTime), Scanned: time.Now()}
	if err := s.writeOwn(s.treePath(digest)+recordExt, r); err != nil {
		return fmt.Errorf("cannot record extracted tree: %w", err)
	}
	return nil
}

// verify looks at what level says, and records that it was right.
func (s *Store) verify(ctx context.Context, f *os.File, img *Image, level scrutiny, progress Progress) error {
	if level == nothing {
		return nil
	}
	var sealed int64 // 0: not known
	if level == everyInode {
		r, err := s.treeRecord(img.Digest)
		if err != nil {
			return err
		}
		sealed = r.Sealed
	}
	progress(0, 0, "verifying the extracted tree")
	last, err := compare(ctx, f, img, sealed)
	if err != nil {
		return fmt.Errorf("cannot trust extracted tree %s: %w", f.Name(), err)
	}
	return s.sealTree(f, img.Digest, last)
}

// compare compares a tree with its image: every inode, and every byte unless
// sealed says when the last change was. It returns the last change that it saw.
func compare(ctx context.Context, dir *os.File, img *Image, sealed int64) (last int64, err error) {
	at, err := newDescent(dir.Name(), func(d *folder) error {
		if sealed != 0 {
			return nil // another name would have changed the folder
		}
		f, err := d.root.Open(".")
		if err != nil {
			return err
		}
		defer f.Close()
		names, err := f.Readdirnames(-1)
		if err == nil && len(names) != d.entries {
			err = fmt.Errorf("%s holds %d names and should hold %d", d.entry.Path, len(names), d.entries)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	defer at.close()
	opened, err := dir.Stat()
	if err != nil {
		return 0, err
	}
	if named, err := at.stack[0].root.Stat("."); err != nil || !os.SameFile(named, opened) {
		return 0, errors.New("it was replaced meanwhile")
	}
	left, right := make([]byte, 128<<10), make([]byte, 128<<10)
	err = erofs.Walk(img.File, func(e erofs.Entry, want io.Reader) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		parent, err := at.parent(e)
		if err != nil {
			return err
		}
		name := path.Base(e.Path)
		if e.Path == "/" {
			name = "."
		}
		info, err := parent.root.Lstat(name)
		if err != nil {
			return err
		}
		if why := differs(info, e, sealed); why != "" {
			return fmt.Errorf("%s %s", e.Path, why)
		}
		last = max(last, info.Sys().(*syscall.Stat_t).Ctim.Nano())
		switch {
		case e.Path == "/":
		case e.Mode.IsDir():
			return at.enter(e)
		case sealed != 0:
		case e.Mode.Type() == fs.ModeSymlink:
			if to, err := parent.root.Readlink(name); err != nil || to != e.Link {
				return errors.Join(fmt.Errorf("%s leads to %q and should lead to %q", e.Path, to, e.Link), err)
			}
		default:
			return sameBytes(parent.root, name, e, want, left, right)
		}
		return nil
	})
	if err == nil {
		err = at.leave("")
	}
	return last, err
}

// differs says how an inode is not what extraction makes of an entry.
func differs(info fs.FileInfo, e erofs.Entry, sealed int64) string {
	st := info.Sys().(*syscall.Stat_t)
	link := e.Mode.Type() == fs.ModeSymlink
	switch {
	case info.Mode().Type() != e.Mode.Type():
		return "is of another kind"
	case int(st.Uid) != os.Geteuid():
		return "belongs to somebody else"
	case sealed != 0 && st.Ctim.Nano() > sealed:
		return "changed after it was made"
	case link:
		return ""
	case info.Mode() != treeMode(e.Mode)|e.Mode.Type():
		return "has mode " + info.Mode().String()
	case e.Mode.IsRegular() && info.Size() != e.Size:
		return fmt.Sprintf("has %d bytes and should have %d", info.Size(), e.Size)
	case e.Path != "/" && !info.ModTime().Equal(e.MTime):
		return "has another time"
	}
	return ""
}

func sameBytes(dir *os.Root, name string, e erofs.Entry, want io.Reader, left, right []byte) error {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for n := e.Size; n > 0; {
		a, b := left[:min(n, int64(len(left)))], right[:min(n, int64(len(right)))]
		if _, err := io.ReadFull(want, a); err != nil {
			return err
		}
		if _, err := io.ReadFull(f, b); err != nil {
			return err
		}
		if !bytes.Equal(a, b) {
			return fmt.Errorf("%s has other contents", e.Path)
		}
		n -= int64(len(a))
	}
	return nil
}
