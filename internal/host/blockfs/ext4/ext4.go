// Package ext4 makes empty ext4 file systems of an exact size.
//
// mkfs.ext4 rounds: to whole groups, to inode counts that fill whole blocks in
// every group, to reserves and a journal that are taken from the size that was
// asked for. A limit has to be exact, and a file system that lives as long as
// one program should be there at once. So this package lays out what the kernel
// needs and no more, a few kilobytes in an otherwise sparse file:
//
//	block 0     superblock at byte 1024, no copies (sparse_super2)
//	then        descriptors of all groups, 32 bytes each
//	then        block bitmaps, inode bitmaps, inode tables of all groups
//	            (flex_bg allows them to lie outside their group)
//	then        the root's one block
//	then        the journal, if there is one
//
// Groups in which nothing is used say so in their descriptor (gdt_csum with
// BLOCK_UNINIT and INODE_UNINIT), and the kernel makes their bitmaps when it
// needs them. Inode tables are zeros, which a sparse file has already.
//
// Who mounts a file system once and throws it away needs no journal. One that is
// kept has one: whenever its host stops, the next mount makes it whole again. And it
// has sums (metadata_csum), so that nobody believes what a disk has changed.
//
// The format is described in Linux Documentation/filesystems/ext4/.
package ext4

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// BlockSize is the size of a block in bytes.
const BlockSize = 4096

// Limits of what can be asked for.
const (
	MinBytes = 1 << 20
	MaxBytes = 8 << 40 // half of what 32-bit block numbers can name
	MaxFiles = 1 << 30
)

// Options describe an empty file system.
type Options struct {
	// Bytes is how much file contents must fit at least, MinBytes to MaxBytes.
	// At most 3 % more do.
	Bytes int64
	// Files is the number of files, folders and links that can be made, 1 to
	// MaxFiles. It is exact.
	Files    int64
	UID, GID uint32 // owner of the root folder, mode 0755
	Now      time.Time
	Seed     [16]byte // random; decides where names lie in large folders
	// Journal gives it a journal, of a size of its own beside Bytes, and sums over
	// what the kernel keeps in it, and lets the kernel write no more once it finds an
	// error.
	Journal bool
}

// Check reports what cannot be made.
func (o Options) Check() error {
	if o.Bytes < MinBytes || o.Bytes > MaxBytes || o.Files < 1 || o.Files > MaxFiles {
		return fmt.Errorf("cannot plan file system of %d bytes and %d files: bytes must be %d to %d, files 1 to %d",
			o.Bytes, o.Files, MinBytes, int64(MaxBytes), MaxFiles)
	}
	return nil
}

// Write writes an empty file system and returns its length. What it does not
// write must read as zeros, up to that length.
func Write(w io.WriterAt, o Options) (size int64, err error) {
	l, err := plan(o)
	if err != nil {
		return 0, err
	}
	for _, p := range l.pieces(o) {
		if _, err := w.WriteAt(p.data, p.off); err != nil {
			return 0, fmt.Errorf("cannot write file system: %w", err)
		}
	}
	return l.blocks * BlockSize, nil
}

// Size is the length of the file system that Write makes.
func Size(o Options) (int64, error) {
	l, err := plan(o)
	return l.blocks * BlockSize, err
}

const (
	inodeSize      = 256
	inodesPerBlock = BlockSize / inodeSize
	descSize       = 32
	bitmapBits     = BlockSize * 8 // of a group's blocks or inodes at most
	reservedInodes = 10            // 1 to 10 belong to the system, 2 is the root
)

// A group has few inodes where it can. Without a journal, ext4 does not use an
// inode again within five minutes of its end if there are others in the group,
// and looks through all of the group to find that out: with 7,000 inodes in it,
// making a file took a millisecond after as many had been removed.
const (
	fewInodes = 512
	fewBlocks = 1024 // smaller groups are not made for that
)

// layout is where everything lies, in blocks.
type layout struct {
	blocks    int64 // all
	groups    int64
	perGroup  int64 // blocks in a group, except the last
	inodes    int64 // in a group
	used      int64 // inodes that nobody gets: the reserved ones and the excess
	tables    int64 // first inode table; bitmaps lie before
	tableSize int64
	root      int64 // the root's block
	journal   int64 // blocks of the journal, which follow it
	end       int64 // all from here on are free
}

// journalBlocks is the size of the journal of a file system of so many blocks of
// contents, as mkfs.ext4 chooses it: 4, 16 or 32 MiB. The kernel wants 1024 blocks
// (JBD2_MIN_JOURNAL_BLOCKS), and one extent maps 32,768.
func journalBlocks(data int64) int64 {
	switch {
	case data < 32<<10:
		return 1024
	case data < 256<<10:
		return 4096
	}
	return 8192
}

func plan(o Options) (layout, error) {
	if err := o.Check(); err != nil {
		return layout{}, err
	}
	// Files take whole blocks, and a large one a block for its map per 340
	// pieces: a slack of 0.4 %.
	data := ceil(o.Bytes, BlockSize)
	data += data/256 + 4
	files := o.Files + reservedInodes
	l := layout{groups: 1}
	if o.Journal {
		l.journal = journalBlocks(data)
	}
	for {
		l.inodes = ceil(ceil(files, l.groups), inodesPerBlock) * inodesPerBlock
		l.tableSize = l.inodes / inodesPerBlock
		l.tables = 1 + ceil(l.groups*descSize, BlockSize) + 2*l.groups
		l.root = l.tables + l.groups*l.tableSize
		l.end = l.root + 1 + l.journal
		l.blocks = l.end + data
		// The kernel keeps a 50th for itself, at most 4096 blocks; see
		// ext4_set_resv_clusters.
		l.blocks += min(l.blocks/49+1, 4096)
		need := max(ceil(l.blocks, bitmapBits), ceil(files, bitmapBits), min(ceil(files, fewInodes), l.blocks/fewBlocks))
		if need > l.groups {
			l.groups = need
			continue
		}
		l.perGroup = min(ceil(ceil(l.blocks, l.groups), 8)*8, bitmapBits)
		if l.blocks-l.perGroup*(l.groups-1) >= 8 {
			break
		}
		l.groups++ // rounding left nothing for the last one
	}
	l.used = l.groups*l.inodes - o.Files
	return l, nil
}

func ceil(n, by int64) int64 { return (n + by - 1) / by }

// in returns how many of the first n things lie in group g, of per in each.
func in(n, g, per int64) int64 { return max(0, min(n-g*per, per)) }

type piece struct {
	off  int64
	data []byte
}

// pieces returns what is not zero.
func (l layout) pieces(o Options) []piece {
	var all []piece
	descs := make([]byte, ceil(l.groups*descSize, BlockSize)*BlockSize)
	bitmaps := l.tables - 2*l.groups
	for g := range l.groups {
		length, used := in(l.blocks, g, l.perGroup), in(l.end, g, l.perGroup)
		taken := in(l.used, g, l.inodes)
		d := desc{
			blockBitmap: bitmaps + g, inodeBitmap: bitmaps + l.groups + g, table: l.tables + g*l.tableSize,
			freeBlocks: length - used, freeInodes: l.inodes - taken, flags: flagZeroed,
		}
		if g == 0 {
			d.dirs = 1
		}
		if used > 0 || g == l.groups-1 {
			b := bitmap(used, length)
			d.blockSum = o.sums().bitmap(b, l.perGroup)
			all = append(all, piece{d.blockBitmap * BlockSize, b})
		} else {
			d.flags |= flagBlocksUninit
		}
		if taken > 0 {
			b := bitmap(taken, l.inodes)
			d.inodeSum = o.sums().bitmap(b, l.inodes)
			all = append(all, piece{d.inodeBitmap * BlockSize, b})
		} else {
			d.flags |= flagInodesUninit
		}
		d.put(descs[g*descSize:], uint32(g), o)
	}
	if l.journal > 0 {
		all = append(all,
			piece{l.tables*BlockSize + (journalNumber-1)*inodeSize, l.journalInode(o)},
			piece{(l.root + 1) * BlockSize, l.journalSuper()},
		)
	}
	return append(all,
		piece{1 * BlockSize, descs},
		piece{l.tables*BlockSize + (rootNumber-1)*inodeSize, l.rootInode(o)},
		piece{l.root * BlockSize, rootBlock(o)},
		piece{superOffset, l.super(o)},
	)
}

// bitmap returns a bitmap whose first bits are set, and those from length on.
func bitmap(used, length int64) []byte {
	b := make([]byte, BlockSize)
	for i := range b {
		first := int64(i) * 8
		b[i] = byte(1<<in(used, int64(i), 8)-1) | byte(0xff<<min(max(length-first, 0), 8))
	}
	return b
}

// desc is a group descriptor.
type desc struct {
	blockBitmap, inodeBitmap, table int64
	freeBlocks, freeInodes, dirs    int64
	flags                           uint16
	blockSum, inodeSum              uint16 // of the bitmaps, if there are sums
}

const (
	flagInodesUninit = 1
	flagBlocksUninit = 2
	flagZeroed       = 4 // the inode table is all zeros where it is unused
)

func (d desc) put(b []byte, group uint32, o Options) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(d.blockBitmap))
	le.PutUint32(b[4:], uint32(d.inodeBitmap))
	le.PutUint32(b[8:], uint32(d.table))
	le.PutUint16(b[12:], uint16(d.freeBlocks))
	le.PutUint16(b[14:], uint16(d.freeInodes))
	le.PutUint16(b[16:], uint16(d.dirs))
	le.PutUint16(b[18:], d.flags)
	le.PutUint16(b[28:], uint16(d.freeInodes)) // unused ones at the table's end
	if o.Journal {
		le.PutUint16(b[24:], d.blockSum)
		le.PutUint16(b[26:], d.inodeSum)
		le.PutUint16(b[30:], o.sums().group(group, b[:30]))
		return
	}
	// The checksum is over the file system's UUID, which is zero, the group's
	// number, and what comes before the checksum.
	sum := crc16(0xffff, make([]byte, 16))
	sum = crc16(sum, le.AppendUint32(nil, group))
	le.PutUint16(b[30:], crc16(sum, b[:30]))
}

// crc16 is CRC-16/ARC without its usual start, as in Linux lib/crc16.c.
func crc16(sum uint16, b []byte) uint16 {
	for _, c := range b {
		sum ^= uint16(c)
		for range 8 {
			low := sum & 1
			if sum >>= 1; low != 0 {
				sum ^= 0xa001
			}
		}
	}
	return sum
}
