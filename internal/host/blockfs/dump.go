package blockfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// A dump is a store as a stream: a mark, the size of the store in 8 bytes, and
// pieces, each with its offset and length in 8 bytes each, in order, until one of
// length 0 at the store's end. What is between them is zeros. Numbers are little
// endian, offsets and lengths multiples of a block.
const (
	dumpMark  = "sunaba/ext4/1\n\x00\x00"
	pieceSize = 1 << 20 // bytes of a piece at most
)

// Format names what [Dump] writes and [RestoreStore] reads.
const Format = "ext4-1"

// Dump writes out all that a store holds, for [RestoreStore]. The caller sees to
// it that nobody changes the store meanwhile, by whatever descriptor or mapping.
//
// What is deleted does not come along, but for files that somebody still had open:
// their room is taken in the copy, too, by nobody's file. It needs ioctl_getfsmap(2),
// and reads the device past the page cache, which may hold what is old.
func Dump(store *os.File, w io.Writer) error {
	if err := host.SyncFS(store); err != nil {
		return err
	}
	dev, err := device(store)
	if err != nil {
		return err
	}
	defer dev.Close()
	size, err := unix.Seek(int(dev.Fd()), 0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("cannot measure the store: %w", err)
	}
	buf, err := unix.Mmap(-1, 0, pieceSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) // for its alignment
	if err != nil {
		return fmt.Errorf("cannot get memory to read the store: %w", err)
	}
	defer func() { _ = unix.Munmap(buf) }()
	head := binary.LittleEndian.AppendUint64([]byte(dumpMark), uint64(size))
	if _, err := w.Write(head); err != nil {
		return err
	}
	var copied int64
	err = extents(store, size, func(off, length int64) error {
		copied += length
		if off < 0 || length < 0 || off > size-length || (off|length)%blockSize != 0 {
			return fmt.Errorf("cannot read the store: a range of %d bytes at %d of %d", length, off, size)
		}
		for length > 0 {
			part := buf[:min(length, pieceSize)]
			if _, err := dev.ReadAt(part, off); err != nil {
				return fmt.Errorf("cannot read the store: %w", err)
			}
			if err := pieces(w, part, off); err != nil {
				return err
			}
			off, length = off+int64(len(part)), length-int64(len(part))
		}
		return nil
	})
	if err == nil {
		err = enough(store, size, copied)
	}
	if err != nil {
		return err
	}
	return piece(w, nil, size)
}

// enough compares with the file system's own count how much of a store was told as
// in use. It may be more: what is set aside for files that grow is free, too.
func enough(store *os.File, size, copied int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(store.Fd()), &st); err != nil {
		return fmt.Errorf("cannot measure the store: %w", err)
	}
	if used := size - int64(st.Bfree)*st.Bsize; copied < used {
		return fmt.Errorf("cannot copy the store: the kernel tells where %d of its bytes are, of %d", copied, used)
	}
	return nil
}

// pieces writes the blocks of b, which lie at off, that are not zero.
func pieces(w io.Writer, b []byte, off int64) error {
	var zero [blockSize]byte
	for at := 0; at < len(b); {
		end := at
		for end < len(b) && !bytes.Equal(b[end:end+blockSize], zero[:]) {
			end += blockSize
		}
		if end > at {
			if err := piece(w, b[at:end], off+int64(at)); err != nil {
				return err
			}
		}
		at = end + blockSize
	}
	return nil
}

func piece(w io.Writer, b []byte, off int64) error {
	head := binary.LittleEndian.AppendUint64(nil, uint64(off))
	if _, err := w.Write(binary.LittleEndian.AppendUint64(head, uint64(len(b)))); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// device opens the loop device that a store is on, to be read past the page cache.
func device(store *os.File) (*os.File, error) {
	var st, got unix.Stat_t
	if err := unix.Fstat(int(store.Fd()), &st); err != nil {
		return nil, fmt.Errorf("cannot find the device of the store: %w", err)
	}
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return nil, fmt.Errorf("cannot find the device of the store: %w", err)
	}
	dev, err := os.OpenFile("/dev/"+filepath.Base(link), os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the device of the store: %w", err)
	}
	if err := unix.Fstat(int(dev.Fd()), &got); err != nil || got.Rdev != st.Dev || got.Mode&unix.S_IFMT != unix.S_IFBLK {
		dev.Close()
		return nil, errors.Join(errors.New("cannot open the device of the store: another one has its name"), err)
	}
	return dev, nil
}
