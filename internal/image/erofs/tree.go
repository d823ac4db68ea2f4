package erofs

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
)

// node is an entry with its place in the image.
type node struct {
	entry    Entry
	name     string
	parent   *node // the root's parent is the root
	children []*node
	implied  bool // made because something lies below it

	data   []byte // link target, or the directory's blocks
	offset int64  // of the inode, in bytes
	inline bool   // data follows the inode
	block  uint32 // first block of the contents; 0 if there are none or inline
}

func (n *node) regular() bool { return n.entry.Mode.IsRegular() }

// id is the number by which directories refer to an inode.
func (n *node) id() uint64 { return uint64(n.offset) >> slotBits }

func (n *node) size() int64 {
	if n.regular() {
		return n.entry.Size
	}
	return int64(len(n.data))
}

func (n *node) links() uint32 {
	if !n.entry.Mode.IsDir() {
		return 1
	}
	links := uint32(2)
	for _, c := range n.children {
		if c.entry.Mode.IsDir() {
			links++
		}
	}
	return links
}

// fileType is the type that a directory gives for an entry.
func fileType(m fs.FileMode) byte {
	switch m.Type() {
	case fs.ModeDir:
		return typeDir
	case fs.ModeSymlink:
		return typeSymlink
	}
	return typeRegular
}

type modeBit struct {
	mode fs.FileMode
	unix uint16
}

// modeBits lists what a mode has besides permissions, except regular.
func modeBits() [5]modeBit {
	return [...]modeBit{
		{fs.ModeDir, 0o040000}, {fs.ModeSymlink, 0o120000},
		{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000},
	}
}

func (n *node) unixMode() uint16 {
	m := uint16(n.entry.Mode.Perm())
	for _, bit := range modeBits() {
		if n.entry.Mode&bit.mode != 0 {
			m |= bit.unix
		}
	}
	if n.regular() {
		m |= 0o100000
	}
	return m
}

// tree is a file system in the order in which its inodes are written.
type tree struct {
	nodes    []*node // root first, then depth first, siblings by name
	metaSize int64   // bytes up to the end of the inodes, whole blocks
}

func newTree(entries []Entry) (*tree, error) {
	root := &node{name: "/", implied: true, entry: Entry{Path: "/", Mode: fs.ModeDir | 0o755}}
	root.parent = root
	byPath := map[string]*node{"/": root}

	var dir func(p string) (*node, error)
	dir = func(p string) (*node, error) {
		n := byPath[p]
		if n == nil {
			parent, err := dir(path.Dir(p))
			if err != nil {
				return nil, err
			}
			n = &node{name: path.Base(p), parent: parent, implied: true, entry: Entry{Path: p, Mode: fs.ModeDir | 0o755}}
			parent.children = append(parent.children, n)
			byPath[p] = n
		}
		if !n.entry.Mode.IsDir() {
			return nil, fmt.Errorf("cannot place an entry below %s: it is not a directory", p)
		}
		return n, nil
	}
	for _, e := range entries {
		if err := e.check(); err != nil {
			return nil, err
		}
		if n := byPath[e.Path]; n != nil {
			if !n.implied {
				return nil, fmt.Errorf("cannot place %q: the path is there twice", e.Path)
			}
			if !e.Mode.IsDir() {
				return nil, fmt.Errorf("cannot place %q: something lies below it, and it is not a directory", e.Path)
			}
			n.entry, n.implied = e, false
			continue
		}
		parent, err := dir(path.Dir(e.Path))
		if err != nil {
			return nil, err
		}
		n := &node{name: path.Base(e.Path), parent: parent, entry: e}
		parent.children = append(parent.children, n)
		byPath[e.Path] = n
	}
	t := &tree{nodes: make([]*node, 0, len(byPath))}
	t.collect(root)
	return t, nil
}

func (t *tree) collect(n *node) {
	t.nodes = append(t.nodes, n)
	slices.SortFunc(n.children, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	for _, c := range n.children {
		t.collect(c)
	}
}

func (e *Entry) check() error {
	if !strings.HasPrefix(e.Path, "/") || path.Clean(e.Path) != e.Path || strings.ContainsRune(e.Path, 0) {
		return fmt.Errorf("cannot place %q: the path is not absolute and clean", e.Path)
	}
	for name := range strings.SplitSeq(e.Path, "/") {
		if len(name) > MaxName {
			return fmt.Errorf("cannot place %q: a name is longer than %d bytes", e.Path, MaxName)
		}
	}
	switch e.Mode.Type() {
	case fs.ModeDir:
	case fs.ModeSymlink:
		if e.Link == "" || len(e.Link) > MaxLink || strings.ContainsRune(e.Link, 0) {
			return fmt.Errorf("cannot place %q: a link target has 1 to %d bytes, none of them NUL", e.Path, MaxLink)
		}
	case 0:
		if e.Size < 0 || e.Size > 0 && e.Open == nil {
			return fmt.Errorf("cannot place %q: %d bytes without contents", e.Path, e.Size)
		}
	default:
		return fmt.Errorf("cannot place %q: %v is not a file, directory or link", e.Path, e.Mode.Type())
	}
	return nil
}

// place gives every inode and every piece of data its position and returns
// the number of blocks of the image.
func (t *tree) place() (int64, error) {
	off := int64(superOffset + superSize)
	for _, n := range t.nodes {
		switch {
		case n.entry.Mode.IsDir():
			n.data = n.pack() // the ids are filled in below
		case !n.regular():
			n.data = []byte(n.entry.Link)
		}
		need := int64(inodeSize)
		if len(n.data) > 0 && len(n.data) <= BlockSize-inodeSize {
			n.inline = true
			need += int64(len(n.data))
		}
		// Inline data and its inode must lie in one block.
		if off%BlockSize+need > BlockSize {
			off = roundUp(off, BlockSize)
		}
		n.offset = off
		off = roundUp(off+need, inodeSize)
	}
	t.metaSize = roundUp(off, BlockSize)
	if len(t.nodes) > math.MaxUint32 {
		return 0, fmt.Errorf("cannot write image: %d entries are too many", len(t.nodes))
	}

	next := t.metaSize / BlockSize
	for _, files := range []bool{false, true} {
		for _, n := range t.nodes {
			if n.regular() != files || n.inline || n.size() == 0 {
				continue
			}
			blocks := (n.size()-1)/BlockSize + 1
			if blocks > maxBlocks-next {
				return 0, fmt.Errorf("cannot write image: it is larger than %d blocks of %d bytes", int64(maxBlocks), BlockSize)
			}
			n.block = uint32(next)
			next += blocks
		}
	}
	for _, n := range t.nodes {
		if n.entry.Mode.IsDir() {
			n.data = n.pack()
		}
	}
	return next, nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// direntSize is the size of a directory entry without its name.
const direntSize = 12

// pack returns the directory's contents. Every block holds an array of
// entries followed by their names; entries are sorted by the bytes of their
// names, "." and ".." among them, over the whole directory, because readers
// search the blocks and then the entries of one block by bisection.
func (n *node) pack() []byte {
	type dirent struct {
		name string
		to   *node
	}
	all := []dirent{{".", n}, {"..", n.parent}}
	for _, c := range n.children {
		all = append(all, dirent{c.name, c})
	}
	slices.SortFunc(all, func(a, b dirent) int { return strings.Compare(a.name, b.name) })

	le := binary.LittleEndian
	var out []byte
	for len(all) > 0 {
		count, used := 0, 0
		for count < len(all) && used+direntSize+len(all[count].name) <= BlockSize {
			used += direntSize + len(all[count].name)
			count++
		}
		block := make([]byte, BlockSize)
		name := count * direntSize
		for i, d := range all[:count] {
			e := block[i*direntSize:]
			le.PutUint64(e[0:], d.to.id())
			le.PutUint16(e[8:], uint16(name))
			e[10] = fileType(d.to.entry.Mode)
			name += copy(block[name:], d.name)
		}
		all = all[count:]
		if len(all) == 0 {
			block = block[:name] // the last block ends with its last name
		}
		out = append(out, block...)
	}
	return out
}
