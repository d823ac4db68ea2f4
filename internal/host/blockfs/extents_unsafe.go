package blockfs

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FS_IOC_GETFSMAP of ioctl_getfsmap(2), with the layout of struct fsmap_head (192
// bytes) and struct fsmap (64 bytes).
const (
	getFSMap      = 0xc0c0583b
	headSize      = 192
	recordSize    = 64
	records       = 256
	lowKey        = 64 // offsets in the head
	highKey       = 128
	ownerSpecial  = 0x10 // flags of a record
	lastRecord    = 0x20
	ownerFree     = 1
	recordFlags   = 4 // offsets in a record
	recordStart   = 8
	recordOwner   = 16
	recordLength  = 32
	headCount     = 8
	headEntries   = 12
	mostOfRecords = 1 << 24 // more calls than any store has blocks for
)

// extents calls fn for each range of a store's device of size bytes that is not
// told as free, in order, in bytes. The kernel tells by what it has in memory: see
// Dump. Only what it says of free ranges counts: Linux 6.18 leaves out what is in
// use at the end of a group that is free before and behind that.
func extents(store *os.File, size int64, fn func(off, length int64) error) error {
	fd, err := unix.Openat(int(store.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the store: %w", err)
	}
	defer unix.Close(fd)
	le := binary.NativeEndian
	b := make([]byte, headSize+records*recordSize)
	for i := range recordLength { // device, flags, start, owner and offset of the last key
		b[highKey+i] = 0xff
	}
	next := int64(0)
	for range mostOfRecords {
		le.PutUint32(b[headCount:], records)
		le.PutUint32(b[headEntries:], 0)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getFSMap, uintptr(unsafe.Pointer(&b[0])))
		runtime.KeepAlive(b)
		if errno != 0 {
			return fmt.Errorf("cannot ask the store what is in use: %w", errno)
		}
		n := int(le.Uint32(b[headEntries:]))
		if n > records {
			return fmt.Errorf("cannot ask the store what is in use: %d answers of %d", n, records)
		}
		var last []byte
		for i := range n {
			last = b[headSize+i*recordSize:][:recordSize]
			flags := le.Uint32(last[recordFlags:])
			if flags&ownerSpecial == 0 || le.Uint64(last[recordOwner:]) != ownerFree {
				continue
			}
			start, length := int64(le.Uint64(last[recordStart:])), int64(le.Uint64(last[recordLength:]))
			if start < next || length < 0 || length > size-start {
				return fmt.Errorf("cannot ask the store what is in use: %d bytes at %d are free, of %d", length, start, size)
			}
			if start > next {
				if err := fn(next, start-next); err != nil {
					return err
				}
			}
			next = start + length
		}
		if n == 0 || le.Uint32(last[recordFlags:])&lastRecord != 0 {
			if next == size {
				return nil
			}
			return fn(next, size-next)
		}
		copy(b[lowKey:highKey], last)
	}
	return fmt.Errorf("cannot ask the store what is in use: it does not end")
}
