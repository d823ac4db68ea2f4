package ext4

import (
	"encoding/binary"
	"hash/crc32"
)

// A file system that is kept has sums over everything that the kernel keeps for
// itself (metadata_csum): what a disk has changed is an error and is not believed.
// They are CRC-32C, from a seed of the file system's own, so that a block of one is
// none of another. See "Checksums" in Linux Documentation/filesystems/ext4/.
type sums struct{ seed uint32 }

func (o Options) sums() sums { return sums{binary.LittleEndian.Uint32(o.Seed[:])} }

// crc32c goes on with a sum, in the kernel's way: nothing is inverted.
func crc32c(sum uint32, b []byte) uint32 {
	return ^crc32.Update(^sum, crc32.MakeTable(crc32.Castagnoli), b)
}

// group is of a group's descriptor, up to the sum itself.
func (s sums) group(n uint32, desc []byte) uint16 {
	sum := crc32c(s.seed, binary.LittleEndian.AppendUint32(nil, n))
	sum = crc32c(sum, desc)
	return uint16(crc32c(sum, []byte{0, 0})) // where the sum will be
}

// bitmap is of as many bits of a bitmap as a group has.
func (s sums) bitmap(b []byte, bits int64) uint16 { return uint16(crc32c(s.seed, b[:bits/8])) }

func (s sums) inode(n uint32) uint32 {
	return crc32c(s.seed, binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, n), 0)) // of generation 0
}

// sealInode puts the sum of an inode into it.
func (s sums) sealInode(n uint32, b []byte) {
	sum := crc32c(s.inode(n), b)
	binary.LittleEndian.PutUint16(b[0x7c:], uint16(sum))
	binary.LittleEndian.PutUint16(b[0x82:], uint16(sum>>16))
}

// dirTail is the size of the false entry at the end of a folder's block that has its
// sum.
const dirTail = 12

// sealDir puts it into a folder's block of inode n.
func (s sums) sealDir(n uint32, b []byte) {
	tail := b[len(b)-dirTail:]
	binary.LittleEndian.PutUint16(tail[4:], dirTail)
	tail[7] = 0xde
	binary.LittleEndian.PutUint32(tail[8:], crc32c(s.inode(n), b[:len(b)-dirTail]))
}

// superSum is where the superblock's own is.
const superSum = 0x3fc

func sealSuper(b []byte) {
	binary.LittleEndian.PutUint32(b[superSum:], crc32c(^uint32(0), b[:superSum]))
}

func sealedSuper(b []byte) bool {
	return binary.LittleEndian.Uint32(b[superSum:]) == crc32c(^uint32(0), b[:superSum])
}
