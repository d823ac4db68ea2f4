package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// record is what a store knows of an image beside its bytes.
type record struct {
	Name     box.ImageName `json:"name"`
	Binds    []box.Mount   `json:"binds,omitempty"`
	Path     string        `json:"path"`
	Notes    []string      `json:"notes,omitempty"`
	Verified *verified     `json:"verified,omitempty"`

	used time.Time // the record's own modification time
}

// verified identifies an inode whose bytes were read and found right.
type verified struct {
	Boot  string `json:"boot"`
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	UID   uint32 `json:"uid"`
	Mode  uint32 `json:"mode"`
	CTime int64  `json:"ctime_ns"`
	MTime int64  `json:"mtime_ns"`
}

func inode(boot string, st *syscall.Stat_t) verified {
	return verified{
		Boot: boot, Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, UID: st.Uid, Mode: st.Mode,
		CTime: st.Ctim.Nano(), MTime: st.Mtim.Nano(),
	}
}

// maxRecord bounds what is read of a record, in bytes.
const maxRecord = 1 << 20

// readOwn reads a small file of the store that only its owner can have written
// and nobody else can read.
func (s *Store) readOwn(name string) ([]byte, time.Time, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	if st := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return nil, time.Time{}, fmt.Errorf("%s is not private to user %d", name, os.Geteuid())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	return b, info.ModTime(), err
}

// writeOwn replaces a small file of the store.
func (s *Store) writeOwn(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(s.dir, "tmp-record-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err := errors.Join(err, tmp.Close()); err != nil {
		os.Remove(tmp.Name())
		return err
	}
	return os.Rename(tmp.Name(), name)
}

func (s *Store) record(digest string) (*record, error) {
	b, used, err := s.readOwn(s.file(digest, recordExt))
	if err != nil {
		return nil, err
	}
	r := &record{used: used}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("cannot read record of %s: %w", digest, err)
	}
	return r, nil
}

// open opens and verifies an image. What r says of it, except Verified, goes
// into the image and into its record.
func (s *Store) open(ctx context.Context, digest string, r *record) (_ *Image, err error) {
	name := s.file(digest, imageExt)
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		kind := box.Fault
		if errors.Is(err, fs.ErrNotExist) {
			kind = box.NotFound
		}
		return nil, box.Errorf(kind, "open image", "cannot open image: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	refuse := func(why string) error {
		return box.Errorf(box.Fault, "open image", "cannot trust image %s: %s", digest, why).
			WithHint("remove %s; it is made again when it is needed", name)
	}
	before, st, err := s.stat(f)
	if err != nil {
		return nil, err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o222 != 0 {
		return nil, refuse(fmt.Sprintf("it is not a read-only file of user %d", os.Geteuid()))
	}
	img := &Image{Name: r.Name, Digest: digest, File: f, Binds: r.Binds, Path: r.Path, Notes: r.Notes}

	old, _ := s.record(digest)
	if old != nil && old.Verified != nil && *old.Verified == before && s.boot != "" {
		now := time.Now()
		os.Chtimes(s.file(digest, recordExt), now, now) // for Info.Used
		return img, nil
	}
	settled := time.Since(time.Unix(0, before.CTime)) > time.Second
	sum := sha256.New()
	if _, err := io.CopyBuffer(&ctxWriter{ctx, sum}, readerOnly{f}, make([]byte, 1<<20)); err != nil {
		return nil, fmt.Errorf("cannot verify image: %w", err)
	}
	if got := prefix + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return nil, refuse("its bytes have the digest " + got)
	}
	if after, _, err := s.stat(f); err != nil || after != before {
		return nil, refuse("it changed while it was read")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("cannot verify image: %w", err)
	}
	fresh := *r
	fresh.Verified = nil
	if settled {
		fresh.Verified = &before
	}
	err = s.writeOwn(s.file(digest, recordExt), fresh)
	if err != nil && (old == nil || !host.IsShortage(err)) { // with a record, only that it was read is forgotten
		return nil, fmt.Errorf("cannot record image: %w", err)
	}
	return img, nil
}

// readerOnly hides the file's other methods, so that the copy uses our buffer.
type readerOnly struct{ io.Reader }

func (s *Store) stat(f *os.File) (verified, *syscall.Stat_t, error) {
	info, err := f.Stat()
	if err != nil {
		return verified{}, nil, fmt.Errorf("cannot open image: %w", err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return inode(s.boot, st), st, nil
}

// made returns the digest of the image made from the inputs with this hash.
func (s *Store) made(key string) (digest string, ok bool) {
	b, _, err := s.readOwn(s.keyFile(key))
	if err != nil {
		return "", false
	}
	err = json.Unmarshal(b, &digest)
	return digest, err == nil && validDigest(digest)
}

func (s *Store) setMade(key, digest string) error {
	if err := s.writeOwn(s.keyFile(key), digest); err != nil {
		return fmt.Errorf("cannot record image: %w", err)
	}
	return nil
}

func (s *Store) keyFile(key string) string { return filepath.Join(s.dir, "key-"+key+".json") }
