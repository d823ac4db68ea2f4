package erofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// folder is a directory while it is being read.
type folder struct {
	path    string
	nid, up uint64 // its own id and that of the directory above
	links   uint32

	at, left int64  // the blocks that were not read yet
	block    []byte // the block that is being read
	entries  int    // entries in it
	i        int    // the next one
	last     string // name of the last one; they are in order
	typ      byte   // type of the last one
	dots     int    // "." and ".." so far
	dirs     uint32 // directories so far
}

// next returns the next name and its id, io.EOF at the end. "." and ".." are
// checked and left out.
func (d *folder) next(f io.ReaderAt) (name string, nid uint64, err error) {
	for {
		if d.i == d.entries {
			if err := d.fill(f); err != nil {
				return "", 0, err
			}
		}
		e := d.block[d.i*direntSize:]
		nid = binary.LittleEndian.Uint64(e)
		if name, err = d.name(); err != nil {
			return "", 0, err
		}
		if name <= d.last {
			return "", 0, errors.New("its names are not in order")
		}
		d.typ, d.last = e[10], name
		d.i++
		want := d.nid
		switch name {
		case "..":
			want = d.up
			fallthrough
		case ".":
			if d.dots++; nid != want || d.typ != typeDir {
				return "", 0, errors.New("it does not lead to itself or up")
			}
			continue
		}
		if d.typ == typeDir {
			d.dirs++
		}
		return name, nid, nil
	}
}

// name returns the name of entry i.
func (d *folder) name() (string, error) {
	le := binary.LittleEndian
	e := d.block[d.i*direntSize:]
	from, to := int(le.Uint16(e[8:])), len(d.block)
	if d.i+1 < d.entries {
		to = int(le.Uint16(e[direntSize+8:]))
	}
	if from < d.entries*direntSize || to > len(d.block) || from >= to || e[11] != 0 {
		return "", errors.New("a name is outside its block")
	}
	b := d.block[from:to]
	if d.i+1 == d.entries && d.left > 0 {
		b = bytes.TrimRight(b, "\x00") // the rest of a full block
	}
	if len(b) == 0 || len(b) > MaxName || bytes.ContainsAny(b, "/\x00") {
		return "", errors.New("a name has no name's length or letters")
	}
	return string(b), nil
}

// fill reads the next block.
func (d *folder) fill(f io.ReaderAt) error {
	if d.left == 0 {
		if d.dots != 2 || d.links != d.dirs+2 {
			return errors.New("its links do not add up")
		}
		return io.EOF
	}
	d.block = make([]byte, min(d.left, BlockSize))
	if err := readAt(f, d.block, d.at); err != nil {
		return err
	}
	if len(d.block) < direntSize {
		return errors.New("its block is too short")
	}
	first := int(binary.LittleEndian.Uint16(d.block[8:]))
	if first == 0 || first%direntSize != 0 || first > len(d.block) {
		return errors.New("its first name is misplaced")
	}
	d.at += int64(len(d.block))
	d.left -= int64(len(d.block))
	d.entries, d.i = first/direntSize, 0
	return nil
}
