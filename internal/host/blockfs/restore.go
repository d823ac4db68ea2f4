package blockfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs/ext4"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// RestoreStore is [NewStore], of a store that holds what [Dump] wrote out of one of
// the same bytes and inodes. On it, files are owned by the user and the group that
// have the number owner; the mount shows these as uid and gid. What does not fit is
// an error (box.Conflict), and so is a dump that is not whole.
//
// The kernel believes what an ext4 file system says of itself. So the caller has
// made sure, by a digest, that the bytes are those that Dump wrote.
func RestoreStore(dir string, dump io.Reader, bytes, inodes int64, owner uint32, uid, gid int) (mnt *os.File, weak []string, err error) {
	size, err := ext4.Size(ext4.Options{Bytes: bytes, Files: inodes})
	if err != nil {
		return nil, nil, box.Errorf(box.Invalid, op, "%w", err)
	}
	f, err := host.OpenUnlinked(dir)
	if err != nil {
		return nil, nil, box.Errorf(box.Fault, op, "cannot make store: %w", err)
	}
	defer f.Close() // the loop device holds it
	if err := hasRoom(f, bytes); err != nil {
		return nil, nil, err
	}
	if err := load(f, dump, size); err != nil {
		kind := box.Fault
		switch {
		case errors.Is(err, errDump) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			kind = box.Conflict
		case errors.Is(err, unix.ENOSPC):
			kind = box.Exhausted
		}
		return nil, nil, box.Errorf(kind, op, "cannot make store of a copy: %w", err)
	}
	mnt, dev, err := mountStore(f)
	if err != nil {
		return nil, nil, err
	}
	defer dev.Close()
	weak, err = weakness(dir, dev, mnt)
	if err == nil {
		if err = hostfs.SetMount(mnt, hostfs.MountAttr{
			Users:  []hostfs.IDMap{{From: owner, To: uint32(uid)}},
			Groups: []hostfs.IDMap{{From: owner, To: uint32(gid)}},
		}); err != nil {
			err = unusable("%w", err)
		}
	}
	if err != nil {
		mnt.Close()
		return nil, nil, err
	}
	return mnt, weak, nil
}

var errDump = errors.New("it is not one that fits") //house:const compared only

// load writes the pieces of a dump to their places in a file.
func load(f *os.File, r io.Reader, size int64) error {
	head := make([]byte, len(dumpMark)+8)
	if _, err := io.ReadFull(r, head); err != nil {
		return fmt.Errorf("cannot read the copy: %w", err)
	}
	if string(head[:len(dumpMark)]) != dumpMark {
		return fmt.Errorf("%w: another kind", errDump)
	}
	if got := binary.LittleEndian.Uint64(head[len(dumpMark):]); got != uint64(size) {
		return fmt.Errorf("%w: of a store of %d bytes, not %d", errDump, got, size)
	}
	buf := make([]byte, pieceSize)
	for next := int64(0); ; {
		if _, err := io.ReadFull(r, head[:16]); err != nil {
			return fmt.Errorf("cannot read the copy: %w", err)
		}
		off, length := binary.LittleEndian.Uint64(head), binary.LittleEndian.Uint64(head[8:])
		if length == 0 && off == uint64(size) {
			break
		}
		if length == 0 || length > pieceSize || off > uint64(size)-length || off < uint64(next) || (off|length)%blockSize != 0 {
			return errDump
		}
		if _, err := io.ReadFull(r, buf[:length]); err != nil {
			return fmt.Errorf("cannot read the copy: %w", err)
		}
		if _, err := f.WriteAt(buf[:length], int64(off)); err != nil {
			return fmt.Errorf("cannot write: %w", err)
		}
		next = int64(off + length)
	}
	if n, err := r.Read(head[:1]); n > 0 || !errors.Is(err, io.EOF) {
		return errDump
	}
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	return clean(f)
}

// clean marks the file system as one that was written out whole, which it was. The
// kernel does so itself only when it is unmounted, and warns without.
func clean(f *os.File) error {
	const state, magic, valid, failed = 1024 + 0x3a, 0xef53, 1, 2 // of ext4's superblock
	var b [4]byte
	if _, err := f.ReadAt(b[:], state-2); err != nil {
		return fmt.Errorf("cannot read back: %w", err)
	}
	is := binary.LittleEndian.Uint16(b[2:])
	if binary.LittleEndian.Uint16(b[:]) != magic || is&failed != 0 {
		return fmt.Errorf("%w: its file system is none, or is damaged", errDump)
	}
	binary.LittleEndian.PutUint16(b[2:], is|valid)
	if _, err := f.WriteAt(b[2:], state); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	return nil
}
