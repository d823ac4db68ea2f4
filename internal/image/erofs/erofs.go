// Package erofs writes EROFS images, read-only file systems that Linux mounts
// and that user-space kernels can map straight from a file, and reads back what
// it wrote.
//
// Only what a reproducible root file system needs is written: 4096-byte
// blocks, extended inodes, no compression, no extended attributes, no devices.
// The contents of a regular file always start on a block boundary and lie in
// one piece, because a reader that maps the image into a program (gVisor, or
// Linux with DAX) cannot map data that begins in the middle of a page.
// Symbolic links and small directories lie beside their inode, which keeps an
// image with thousands of them small.
//
// An image looks like this:
//
//	0     unused
//	1024  superblock, 128 bytes, CRC-32C over the rest of block 0
//	1152  inodes, 64 bytes each, root first, depth first by name
//	...   large directories and links, then file contents, each from a new block
//
// The bytes depend on nothing but the entries: no clock, no random UUID, and
// not on the order in which the entries are given. The format is described in
// Linux Documentation/filesystems/erofs.rst and fs/erofs/erofs_fs.h.
package erofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"time"
)

// Limits of the format and of its readers.
const (
	// BlockSize is the size of a block in bytes, equal to the page size of
	// every machine that can map the image.
	BlockSize = 4096
	// MaxName is the longest name of one path component, in bytes.
	MaxName = 255
	// MaxLink is the longest target of a symbolic link, in bytes: one less
	// than Linux's PATH_MAX, as readers add a NUL.
	MaxLink = 4095
	// maxBlocks is what a 32-bit block address can name: 16 TiB.
	maxBlocks = 1<<32 - 1
)

// Entry is one file, directory or symbolic link.
type Entry struct {
	// Path is absolute and clean, as in "/usr/bin/awk"; "/" sets the root's
	// attributes. Missing parents are made with mode 0755, owned by 0:0.
	Path string
	// Mode holds the type (regular, directory or symbolic link) and the
	// permission, setuid, setgid and sticky bits.
	Mode     fs.FileMode
	UID, GID uint32
	MTime    time.Time // the zero value is written as 1970-01-01
	Size     int64     // exact length of a regular file in bytes
	Link     string    // target of a symbolic link
	// Open gives the contents of a regular file. It is called once by each
	// Write, and may be nil if Size is zero.
	Open func() (io.ReadCloser, error)
}

// Bytes returns an Open function for contents that are in memory.
func Bytes(b []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

// Write writes an image of the entries to w, front to back, and returns its
// length in bytes, a multiple of [BlockSize]. Nothing is written if the
// entries are not a file system or the image would be longer than max bytes
// (0: only the format's own limit of 16 TiB).
//
// A file whose contents are not exactly Size bytes long is an error; what was
// written to w until then is not an image.
func Write(w io.Writer, entries []Entry, max int64) (int64, error) {
	t, err := newTree(entries)
	if err != nil {
		return 0, err
	}
	blocks, err := t.place()
	if err != nil {
		return 0, err
	}
	if max > 0 && blocks > max/BlockSize {
		return 0, fmt.Errorf("cannot write image: it needs %d bytes and may have %d", blocks*BlockSize, max)
	}
	out := &writer{w: w}
	out.write(t.metadata(uint32(blocks)))
	for _, n := range t.nodes {
		if n.block != 0 && !n.regular() {
			out.at(n.block)
			out.write(n.data)
		}
	}
	buf := make([]byte, 256<<10)
	for _, n := range t.nodes {
		if n.block != 0 && n.regular() {
			out.at(n.block)
			out.copy(n, buf)
		}
	}
	out.pad()
	if out.err == nil && out.n != blocks*BlockSize {
		return 0, fmt.Errorf("cannot write image: %d bytes written where %d were planned", out.n, blocks*BlockSize)
	}
	return out.n, out.err
}

// writer counts what it writes and stops at the first error.
type writer struct {
	w   io.Writer
	n   int64
	err error
}

func (o *writer) write(b []byte) {
	if o.err != nil {
		return
	}
	n, err := o.w.Write(b)
	o.n += int64(n)
	if err != nil {
		o.err = fmt.Errorf("cannot write image: %w", err)
	}
}

func (o *writer) pad() {
	if rest := o.n % BlockSize; rest != 0 {
		o.write(make([]byte, BlockSize-rest))
	}
}

// at starts the given block.
func (o *writer) at(block uint32) {
	o.pad()
	if o.err == nil && o.n != int64(block)*BlockSize {
		o.err = fmt.Errorf("cannot write image: at byte %d instead of block %d", o.n, block)
	}
}

func (o *writer) copy(n *node, buf []byte) {
	if o.err != nil {
		return
	}
	r, err := n.entry.Open()
	if err != nil {
		o.err = fmt.Errorf("cannot write image: cannot open %s: %w", n.entry.Path, err)
		return
	}
	defer r.Close()
	left := n.entry.Size
	for left > 0 && o.err == nil {
		part := buf[:min(left, int64(len(buf)))]
		if _, err := io.ReadFull(r, part); err != nil {
			o.err = fmt.Errorf("cannot write image: cannot read %s: %w", n.entry.Path, err)
			return
		}
		o.write(part)
		left -= int64(len(part))
	}
	if o.err != nil {
		return
	}
	switch _, err := io.ReadFull(r, buf[:1]); {
	case err == nil:
		o.err = fmt.Errorf("cannot write image: %s is longer than its %d bytes", n.entry.Path, n.entry.Size)
	case !errors.Is(err, io.EOF):
		o.err = fmt.Errorf("cannot write image: cannot read %s: %w", n.entry.Path, err)
	}
}

// On-disk numbers, from fs/erofs/erofs_fs.h.
const (
	superOffset = 1024
	superSize   = 128
	magic       = 0xE0F5E1E2
	blockBits   = 12

	compatChecksum = 1 << 0 // superblock checksum is valid
	compatMTime    = 1 << 1 // inode times are modification times

	inodeSize      = 64
	slotBits       = 5 // a node id counts 32-byte slots
	formatExtended = 1 << 0
	formatPlain    = 0 << 1
	formatInline   = 2 << 1

	typeRegular = 1
	typeDir     = 2
	typeSymlink = 7
)

// metadata returns the first blocks of the image: superblock and inodes.
func (t *tree) metadata(blocks uint32) []byte {
	m := make([]byte, t.metaSize)
	for i, n := range t.nodes {
		b := m[n.offset:]
		ino := inode{
			format: formatExtended | formatPlain,
			mode:   n.unixMode(),
			size:   uint64(n.size()),
			block:  n.block,
			number: uint32(i + 1),
			uid:    n.entry.UID,
			gid:    n.entry.GID,
			links:  n.links(),
		}
		if n.inline {
			ino.format = formatExtended | formatInline
			copy(b[inodeSize:], n.data)
		}
		if mt := n.entry.MTime; !mt.IsZero() {
			ino.sec, ino.nsec = mt.Unix(), uint32(mt.Nanosecond())
		}
		ino.put(b)
	}
	s := super{root: uint16(t.nodes[0].id()), inodes: uint64(len(t.nodes)), blocks: blocks}
	s.put(m[:BlockSize])
	return m
}

// super is the part of a superblock that is not the same in every image.
type super struct {
	root   uint16 // id of the root's inode
	inodes uint64
	blocks uint32
}

// put writes the superblock into the image's first block, where everything
// else already is.
func (s *super) put(block []byte) {
	le := binary.LittleEndian
	b := block[superOffset : superOffset+superSize]
	le.PutUint32(b[0:], magic)
	le.PutUint32(b[8:], compatChecksum|compatMTime)
	b[12] = blockBits
	le.PutUint16(b[14:], s.root)
	le.PutUint64(b[16:], s.inodes)
	le.PutUint32(b[36:], s.blocks)
	// The checksum is CRC-32C without the usual final inversion.
	crc := crc32.Checksum(block[superOffset:], crc32.MakeTable(crc32.Castagnoli))
	le.PutUint32(b[4:], ^crc)
}

// inode is an extended inode.
type inode struct {
	format   uint16
	mode     uint16
	size     uint64
	block    uint32 // first block of the contents; 0 if none or inline
	number   uint32 // from 1, in the order of the inodes, for 32-bit readers
	uid, gid uint32
	sec      int64
	nsec     uint32
	links    uint32
}

func (i *inode) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint16(b[0:], i.format)
	le.PutUint16(b[4:], i.mode)
	le.PutUint64(b[8:], i.size)
	le.PutUint32(b[16:], i.block)
	le.PutUint32(b[20:], i.number)
	le.PutUint32(b[24:], i.uid)
	le.PutUint32(b[28:], i.gid)
	le.PutUint64(b[32:], uint64(i.sec))
	le.PutUint32(b[40:], i.nsec)
	le.PutUint32(b[44:], i.links)
}
