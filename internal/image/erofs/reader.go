package erofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
)

// maxPath is the longest path that Walk follows, in bytes: one less than
// Linux's PATH_MAX. It bounds the depth, and with it the memory.
const maxPath = 4095

// Walk calls fn for the root and everything below it in the order of the
// image: depth first, siblings by name, a directory before what it holds. The
// reader holds the contents of a regular file, is an [io.SectionReader] of f,
// is nil for anything else, and is used before fn returns. An error of fn ends
// the walk and is returned as it is.
//
// Only what [Write] makes is read, and its very layout is what makes the walk
// safe on any bytes: inodes and data lie in the order in which they are
// visited, so no inode comes twice, a directory cannot hold itself, and no two
// files share data. Whatever lies otherwise is an error, after fn has been
// called for what was in order. Memory is bounded by the depth, at most 8 MiB.
func Walk(f io.ReaderAt, fn func(Entry, io.Reader) error) error {
	r := &cursor{f: f}
	root, err := r.open()
	if err != nil {
		return err
	}
	var stack []*folder
	visit := func(nid uint64, p string, parent *folder) error {
		ino, err := r.inode(nid)
		if err != nil {
			return fmt.Errorf("cannot read image: %.200q: %w", p, err)
		}
		e, err := r.entry(ino, p)
		if err != nil {
			return fmt.Errorf("cannot read image: %.200q: %w", p, err)
		}
		if parent != nil && parent.typ != fileType(e.Mode) {
			return fmt.Errorf("cannot read image: %.200q is not of the kind that its directory says", p)
		}
		var contents io.Reader
		switch {
		case e.Mode.IsRegular():
			contents = io.NewSectionReader(f, ino.data, e.Size)
		case e.Mode.IsDir():
			up := nid
			if parent != nil {
				up = parent.nid
			}
			stack = append(stack, &folder{path: p, nid: nid, up: up, at: ino.data, left: int64(ino.size), links: ino.links})
		}
		return fn(e, contents)
	}
	if err := visit(root, "/", nil); err != nil {
		return err
	}
	for len(stack) > 0 {
		d := stack[len(stack)-1]
		name, nid, err := d.next(f)
		if err == nil && len(d.path)+1+len(name) > maxPath {
			err = fmt.Errorf("a path is longer than %d bytes", maxPath)
		}
		if errors.Is(err, io.EOF) {
			stack = stack[:len(stack)-1]
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read image: directory %.200q: %w", d.path, err)
		}
		if err := visit(nid, path.Join(d.path, name), d); err != nil {
			return err
		}
	}
	if r.count != r.super.inodes {
		return fmt.Errorf("cannot read image: it has %d inodes and should have %d", r.count, r.super.inodes)
	}
	return nil
}

// cursor keeps what the next piece may not overlap with.
type cursor struct {
	f     io.ReaderAt
	super super
	size  int64  // of the image, in bytes
	count uint64 // inodes read

	inodes int64 // end of the last inode and its inline data
	first  int64 // start of the first data seen
	lists  int64 // end of the last directory or link
	files  int64 // end of the last file
	file1  int64 // start of the first file
}

// open reads the superblock and returns the root's id.
func (r *cursor) open() (root uint64, err error) {
	block := make([]byte, BlockSize)
	if err := readAt(r.f, block, 0); err != nil {
		return 0, fmt.Errorf("cannot read image: %w", err)
	}
	le := binary.LittleEndian
	b := block[superOffset:]
	r.super = super{root: le.Uint16(b[14:]), inodes: le.Uint64(b[16:]), blocks: le.Uint32(b[36:])}
	want := bytes.Clone(block)
	clear(want[:superOffset+superSize])
	r.super.put(want)
	if !bytes.Equal(block, want) {
		return 0, errors.New("cannot read image: it does not begin as ours do")
	}
	r.size = int64(r.super.blocks) * BlockSize
	if err := readAt(r.f, make([]byte, 1), r.size-1); err != nil {
		return 0, fmt.Errorf("cannot read image: its end is missing: %w", err)
	}
	r.inodes, r.first, r.file1 = superOffset+superSize, r.size, r.size
	return uint64(r.super.root), nil
}

// placed is an inode with the position of its data.
type placed struct {
	inode
	data int64 // offset in the image; valid if size is not 0
}

func (r *cursor) inode(nid uint64) (placed, error) {
	if nid >= uint64(r.size)>>slotBits {
		return placed{}, errors.New("its inode is outside the image")
	}
	off := int64(nid) << slotBits
	if off < r.inodes || off%inodeSize != 0 || off+inodeSize > r.first {
		return placed{}, errors.New("its inode is not in order")
	}
	b := make([]byte, inodeSize)
	if err := readAt(r.f, b, off); err != nil {
		return placed{}, err
	}
	le := binary.LittleEndian
	i := inode{
		format: le.Uint16(b[0:]), mode: le.Uint16(b[4:]), size: le.Uint64(b[8:]), block: le.Uint32(b[16:]),
		number: le.Uint32(b[20:]), uid: le.Uint32(b[24:]), gid: le.Uint32(b[28:]),
		sec: int64(le.Uint64(b[32:])), nsec: le.Uint32(b[40:]), links: le.Uint32(b[44:]),
	}
	want := make([]byte, inodeSize)
	i.put(want)
	if r.count++; !bytes.Equal(b, want) || uint64(i.number) != r.count || i.nsec >= 1e9 {
		return placed{}, errors.New("its inode is not as ours are")
	}
	r.inodes = off + inodeSize
	return r.place(i, off)
}

// place checks where the data of the inode at off lie.
func (r *cursor) place(i inode, off int64) (placed, error) {
	regular := i.mode&0o170000 == 0o100000
	inline := !regular && i.size <= BlockSize-inodeSize
	format := uint16(formatExtended | formatPlain)
	if inline {
		format = formatExtended | formatInline
	}
	switch {
	case i.format != format, (inline || i.size == 0) != (i.block == 0), !regular && i.size == 0:
		return placed{}, errors.New("its data are not stored as ours are")
	case i.size > uint64(r.size):
		return placed{}, errors.New("it is larger than the image")
	case i.size == 0:
		return placed{inode: i}, nil
	case inline:
		r.inodes += int64(i.size)
		if off%BlockSize+inodeSize+int64(i.size) > BlockSize || r.inodes > r.first {
			return placed{}, errors.New("its data are not in order")
		}
		return placed{i, off + inodeSize}, nil
	}
	start := int64(i.block) * BlockSize
	end := start + roundUp(int64(i.size), BlockSize)
	if start < r.inodes || end > r.size {
		return placed{}, errors.New("its data are not in the image's data")
	}
	r.first = min(r.first, start)
	last := &r.lists
	if regular {
		last = &r.files
		r.file1 = min(r.file1, start)
	}
	if start < *last {
		return placed{}, errors.New("its data are not in order")
	}
	*last = end
	if r.lists > r.file1 {
		return placed{}, errors.New("its data are not in order")
	}
	return placed{i, start}, nil
}

// entry describes an inode, and reads the target of a link.
func (r *cursor) entry(i placed, p string) (Entry, error) {
	e := Entry{
		Path: p, Mode: fs.FileMode(i.mode & 0o777),
		UID: i.uid, GID: i.gid, MTime: time.Unix(i.sec, int64(i.nsec)),
	}
	for _, bit := range modeBits() {
		if bit.unix < 0o10000 && i.mode&bit.unix != 0 {
			e.Mode |= bit.mode
		}
	}
	switch i.mode & 0o170000 {
	case 0o100000:
		e.Size = int64(i.size)
		if i.links != 1 {
			return e, errors.New("it has several names")
		}
	case 0o040000:
		e.Mode |= fs.ModeDir
	case 0o120000:
		e.Mode |= fs.ModeSymlink
		if i.size > MaxLink || i.links != 1 {
			return e, errors.New("it is not a link as ours are")
		}
		b := make([]byte, i.size)
		if err := readAt(r.f, b, i.data); err != nil {
			return e, err
		}
		if e.Link = string(b); strings.ContainsRune(e.Link, 0) {
			return e, errors.New("it is a link with a NUL byte")
		}
	default:
		return e, errors.New("it is not a file, directory or link")
	}
	return e, nil
}

func readAt(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}
