package ext4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

const superOffset = 1024

// Features that the kernel must know. All are older than Linux 4.0.
const (
	compat   = 0x8 | 0x20 | 0x200             // ext_attr, dir_index, sparse_super2
	incompat = 0x2 | 0x40 | 0x200             // filetype, extents, flex_bg
	roCompat = 0x2 | 0x8 | 0x10 | 0x20 | 0x40 // large_file, huge_file, gdt_csum, dir_nlink, extra_isize
)

// Those of a file system that is kept: has_journal, csum_seed (Linux 4.4), and
// metadata_csum in place of gdt_csum.
const (
	keptCompat   = compat | 0x4
	keptIncompat = incompat | 0x2000
	keptRoCompat = roCompat&^0x10 | 0x400
)

// super returns the superblock. Its UUID is zero, so that nobody's
// /dev/disk/by-uuid changes while a box runs.
func (l layout) super(o Options) []byte {
	le := binary.LittleEndian
	b := make([]byte, 1024)
	u32 := func(off int, v int64) { le.PutUint32(b[off:], uint32(v)) }
	u16 := func(off int, v int64) { le.PutUint16(b[off:], uint16(v)) }

	u32(0x00, l.groups*l.inodes)
	u32(0x04, l.blocks)
	u32(0x0c, l.blocks-l.end)
	u32(0x10, l.groups*l.inodes-l.used)
	u32(0x18, 2) // block size: 1024 << 2
	u32(0x1c, 2) // cluster size
	u32(0x20, l.perGroup)
	u32(0x24, l.perGroup) // in clusters
	u32(0x28, l.inodes)
	u32(0x30, o.Now.Unix())
	u16(0x36, -1) // never check after some number of mounts
	u16(0x38, 0xef53)
	u16(0x3a, 1) // clean
	u16(0x3c, 1) // go on after an error: EIO for the box, nothing for the host
	u32(0x40, o.Now.Unix())
	u32(0x4c, 1)         // revision with the fields from here on
	u32(0x54, l.first()) // first inode that is not reserved
	u16(0x58, inodeSize)
	u32(0x5c, compat)
	u32(0x60, incompat)
	u32(0x64, roCompat)
	copy(b[0xec:], o.Seed[:])
	b[0xfc] = 1 // half-MD4
	u32(0x108, o.Now.Unix())
	u16(0x15c, inodeSize-128-96)
	u16(0x15e, inodeSize-128-96)
	u32(0x160, 2) // the hash takes bytes as unsigned
	b[0x174] = 4  // 2^4 groups are allocated from as one
	if l.journal > 0 {
		u16(0x3c, 2) // write no more after an error
		u32(0x5c, keptCompat)
		u32(0x60, keptIncompat)
		u32(0x64, keptRoCompat)
		u32(0xe0, journalNumber)
		b[0x175] = 1 // CRC-32C
		u32(0x270, int64(o.sums().seed))
		b[0xfd] = 1 // a copy of its inode's map and size, for fsck
		copy(b[0x10c:], l.journalMap())
		u32(0x10c+16*4, l.journal*BlockSize)
		sealSuper(b)
	}
	return b
}

// Numbers of inodes.
const (
	rootNumber    = 2
	journalNumber = 8
)

// needsReplay says that there is something in the journal to be done again: an
// incompatible feature that the kernel adds for the time of a mount.
const needsReplay = 0x4

// journalMap is the map of the journal's inode: one extent.
func (l layout) journalMap() []byte {
	le := binary.LittleEndian
	b := make([]byte, 60)
	le.PutUint16(b[0:], 0xf30a)
	le.PutUint16(b[2:], 1) // extents
	le.PutUint16(b[4:], 4) // room for
	le.PutUint16(b[16:], uint16(l.journal))
	le.PutUint32(b[20:], uint32(l.root+1))
	return b
}

func (l layout) journalInode(o Options) []byte {
	le := binary.LittleEndian
	b := make([]byte, inodeSize)
	sec, extra := stamp(o.Now)
	le.PutUint16(b[0x00:], 0o100600)
	le.PutUint32(b[0x04:], uint32(l.journal*BlockSize))
	for _, off := range []int{0x08, 0x0c, 0x10, 0x90} {
		le.PutUint32(b[off:], sec)
	}
	le.PutUint16(b[0x1a:], 1) // links
	le.PutUint32(b[0x1c:], uint32(l.journal*BlockSize/512))
	le.PutUint32(b[0x20:], 0x80000) // mapped by extents
	copy(b[0x28:], l.journalMap())
	le.PutUint16(b[0x80:], inodeSize-128-96)
	for _, off := range []int{0x84, 0x88, 0x8c, 0x94} {
		le.PutUint32(b[off:], extra)
	}
	o.sums().sealInode(journalNumber, b)
	return b
}

// journalSuper is the journal's first block, of Linux include/linux/jbd2.h: it is
// empty. Its numbers are big endian.
func (l layout) journalSuper() []byte {
	be := binary.BigEndian
	b := make([]byte, 1024)
	be.PutUint32(b[0x00:], 0xc03b3998)
	be.PutUint32(b[0x04:], 4) // superblock, version 2
	be.PutUint32(b[0x0c:], BlockSize)
	be.PutUint32(b[0x10:], uint32(l.journal))
	be.PutUint32(b[0x14:], 1) // first block of the log
	be.PutUint32(b[0x18:], 1) // first number of a commit
	be.PutUint32(b[0x40:], 1) // users
	return b
}

// first returns the number of the first inode that is not reserved. The excess
// is declared reserved where the format allows it: in the first group.
func (l layout) first() int64 {
	if first := l.used + 1; first <= l.inodes {
		return first
	}
	return reservedInodes + 1
}

// rootInode returns inode 2: a folder of one block.
func (l layout) rootInode(o Options) []byte {
	le := binary.LittleEndian
	b := make([]byte, inodeSize)
	sec, extra := stamp(o.Now)
	le.PutUint16(b[0x00:], 0o040755)
	le.PutUint16(b[0x02:], uint16(o.UID))
	le.PutUint32(b[0x04:], BlockSize)
	for _, off := range []int{0x08, 0x0c, 0x10, 0x90} {
		le.PutUint32(b[off:], sec)
	}
	le.PutUint16(b[0x18:], uint16(o.GID))
	le.PutUint16(b[0x1a:], 2)             // links
	le.PutUint32(b[0x1c:], BlockSize/512) // sectors
	le.PutUint32(b[0x20:], 0x80000)       // mapped by extents
	le.PutUint16(b[0x28:], 0xf30a)
	le.PutUint16(b[0x2a:], 1) // extents
	le.PutUint16(b[0x2c:], 4) // room for
	le.PutUint16(b[0x38:], 1) // blocks in the first
	le.PutUint32(b[0x3c:], uint32(l.root))
	le.PutUint16(b[0x78:], uint16(o.UID>>16))
	le.PutUint16(b[0x7a:], uint16(o.GID>>16))
	le.PutUint16(b[0x80:], inodeSize-128-96)
	for _, off := range []int{0x84, 0x88, 0x8c, 0x94} {
		le.PutUint32(b[off:], extra)
	}
	if o.Journal {
		o.sums().sealInode(rootNumber, b)
	}
	return b
}

// stamp splits a time as inodes hold it: 34 bits of seconds, 30 of nanoseconds.
func stamp(t time.Time) (sec, extra uint32) {
	s := t.Unix()
	return uint32(s), uint32(t.Nanosecond())<<2 | uint32((s-int64(int32(s)))>>32)&3
}

func rootBlock(o Options) []byte {
	le := binary.LittleEndian
	b := make([]byte, BlockSize)
	room := BlockSize
	if o.Journal {
		room -= dirTail
	}
	le.PutUint32(b[0:], 2)
	le.PutUint16(b[4:], 12)
	b[6], b[7], b[8] = 1, 2, '.'
	le.PutUint32(b[12:], 2)
	le.PutUint16(b[16:], uint16(room-12))
	b[18], b[19] = 2, 2
	copy(b[20:], "..")
	if o.Journal {
		o.sums().sealDir(rootNumber, b)
	}
	return b
}

// Kept is what the superblock of a file system that was mounted before says.
type Kept struct {
	Size int64 // in bytes
	// Replay says that it was not unmounted: the next mount for writing does again
	// what is in its journal.
	Replay bool
	// Errors is how many the kernel has found in it, ever; at least 1 if it says
	// that it is damaged.
	Errors int64
}

// Look reads the superblock of a file system with a journal that [Write] made. It
// knows of no other, so that another one is not mounted.
func Look(r io.ReaderAt) (Kept, error) {
	le := binary.LittleEndian
	b := make([]byte, 1024)
	if _, err := r.ReadAt(b, superOffset); err != nil {
		return Kept{}, fmt.Errorf("cannot read superblock: %w", err)
	}
	const valid, failed = 1, 2
	state := le.Uint16(b[0x3a:])
	switch {
	case le.Uint16(b[0x38:]) != 0xef53:
		return Kept{}, errors.New("cannot use file system: it is no ext4")
	// No other feature comes by a mount.
	case !sealedSuper(b):
		return Kept{}, errors.New("cannot use file system: its superblock is damaged")
	case le.Uint32(b[0x5c:]) != keptCompat, le.Uint32(b[0x60:])&^needsReplay != keptIncompat, le.Uint32(b[0x64:]) != keptRoCompat,
		le.Uint32(b[0x18:]) != 2, le.Uint32(b[0xe0:]) != journalNumber, le.Uint32(b[0xe4:]) != 0:
		return Kept{}, errors.New("cannot use file system: it is not one that was made here")
	}
	k := Kept{Size: int64(le.Uint32(b[0x04:])) * BlockSize, Replay: le.Uint32(b[0x60:])&needsReplay != 0, Errors: int64(le.Uint32(b[0x194:]))}
	if state&failed != 0 || !k.Replay && state&valid == 0 {
		k.Errors = max(k.Errors, 1)
	}
	return k, nil
}
