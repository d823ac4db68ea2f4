package image

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Which image the host's files give takes some milliseconds to find out, more
// than everything else about a box's image. So for the two images that nearly
// all boxes have, with every option at its default, the store keeps what was
// looked at: as long as every one of these inodes is what it was, in the sense
// of [Store]'s verification, the answer is too.

// memory is the file again-NAME.json of a store.
type memory struct {
	Boot    string   `json:"boot"`
	Version int      `json:"version"`
	Digest  string   `json:"digest"` // of the image
	Paths   []string `json:"paths"`
	State   string   `json:"state"` // hash of what the paths are
}

func (s *Store) memoryFile(name box.ImageName) string {
	return filepath.Join(s.dir, "again-"+string(name)+recordExt)
}

// again opens the image that was made last, if it would be made again.
func (s *Store) again(ctx context.Context, name box.ImageName) (*Image, bool) {
	b, _, err := s.readOwn(s.memoryFile(name))
	if err != nil {
		return nil, false
	}
	var m memory
	if json.Unmarshal(b, &m) != nil || m.Boot != s.boot || s.boot == "" || m.Version != baseVersion || !validDigest(m.Digest) {
		return nil, false
	}
	if state, _ := stateOf(m.Paths); state != m.State {
		return nil, false
	}
	img, err := s.Open(ctx, m.Digest)
	if err != nil || img.Name != name {
		return nil, false // who makes it finds out why
	}
	return img, true
}

// remember keeps that the paths gave an image, unless one of them changed since
// a second before they were looked at: a change within the clock's grain could
// not be seen. Not to remember is no error.
func (s *Store) remember(name box.ImageName, before time.Time, paths []string, digest string) {
	state, changed := stateOf(paths)
	if !changed.Before(before.Add(-time.Second)) || s.boot == "" {
		return
	}
	_ = s.writeOwn(s.memoryFile(name), memory{Boot: s.boot, Version: baseVersion, Digest: digest, Paths: paths, State: state})
}

// stateOf hashes what lies at each path, and what a link there leads to, and
// returns when the newest of them changed.
func stateOf(paths []string) (string, time.Time) {
	var newest time.Time
	sum := sha256.New()
	for _, p := range paths {
		info, err := os.Lstat(p)
		add(sum, &newest, info, err)
		if err == nil && info.Mode().Type() == fs.ModeSymlink {
			info, err = os.Stat(p)
			add(sum, &newest, info, err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), newest
}

func add(sum hash.Hash, newest *time.Time, info fs.FileInfo, err error) {
	if err != nil {
		sum.Write([]byte{0})
		return
	}
	st := info.Sys().(*syscall.Stat_t)
	v := inode("", st)
	b := []byte{1}
	for _, n := range []uint64{v.Dev, v.Ino, uint64(v.Size), uint64(v.UID), uint64(st.Gid), uint64(v.Mode), uint64(v.CTime), uint64(v.MTime)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	sum.Write(b)
	if changed := time.Unix(0, st.Ctim.Nano()); changed.After(*newest) {
		*newest = changed
	}
}
