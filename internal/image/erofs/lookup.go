package erofs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Lookup returns the last entry on the way to p, an absolute and clean path, that an
// image of [Write]'s has: p itself, what is no directory above it, or the directory in
// which the next part of p would be. Links are not followed. It reads the directories
// on the way, and believes the image no more than [Walk] does.
func Lookup(f io.ReaderAt, p string) (Entry, error) {
	r := &cursor{f: f}
	nid, err := r.open()
	if err != nil {
		return Entry{}, err
	}
	at, up := "/", nid
	rest := strings.FieldsFunc(p, func(c rune) bool { return c == '/' })
	for {
		ino, err := r.alone(nid)
		if err != nil {
			return Entry{}, fmt.Errorf("cannot read image: %.200q: %w", at, err)
		}
		e, err := r.entry(ino, at)
		if err != nil {
			return Entry{}, fmt.Errorf("cannot read image: %.200q: %w", at, err)
		}
		if len(rest) == 0 || !e.Mode.IsDir() {
			return e, nil
		}
		d := &folder{path: at, nid: nid, up: up, at: ino.data, left: int64(ino.size), links: ino.links}
		next, err := d.find(f, rest[0])
		if errors.Is(err, fs.ErrNotExist) {
			return e, nil
		}
		if err != nil {
			return Entry{}, fmt.Errorf("cannot read image: directory %.200q: %w", at, err)
		}
		at, up, nid, rest = path.Join(at, rest[0]), nid, next, rest[1:]
	}
}

// alone reads an inode whatever was read before it.
func (r *cursor) alone(nid uint64) (placed, error) {
	var number [4]byte
	if nid >= uint64(r.size)>>slotBits {
		return placed{}, errors.New("its inode is outside the image")
	}
	if err := readAt(r.f, number[:], int64(nid)<<slotBits+20); err != nil {
		return placed{}, err
	}
	r.count = uint64(binary.LittleEndian.Uint32(number[:])) - 1
	r.inodes, r.first, r.file1, r.lists, r.files = superOffset+superSize, r.size, r.size, 0, 0
	return r.inode(nid)
}

// find returns the id of a name, or [fs.ErrNotExist].
func (d *folder) find(f io.ReaderAt, want string) (uint64, error) {
	for {
		name, nid, err := d.next(f)
		switch {
		case errors.Is(err, io.EOF):
			return 0, fs.ErrNotExist
		case err != nil:
			return 0, err
		case name == want:
			return nid, nil
		}
	}
}
