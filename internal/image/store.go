package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Store is a folder of images. Any number of processes of one user may use it
// at the same time, and a Store may be used concurrently.
//
// The folder holds, for an image with digest sha256:D, the file D.erofs (mode
// 0444) and the record D.json (mode 0600); key-K.json says which image was made
// from the inputs with hash K; lock-* serialize builders; tmp-* are unfinished;
// trees/D is the image's content as files, for those who cannot mount it (see
// [Store.Tree]), and trees/D.json its record.
// A file gets its name only when it is complete and on disk.
//
// # Verification
//
// Opening an image computes SHA-256 over the open descriptor. Because that
// costs up to a second for a large image, a record of the inode (device,
// number, size, owner, mode, change and modification time in nanoseconds, and
// the boot it was made in) is kept beside it after a full verification, and a
// descriptor whose inode still equals the record is trusted without reading
// it again until the next boot. A program that changes the file or puts
// another in its place changes the inode's change time, which no system call
// can set back. The record is made only when the change time is at least a
// second old, so that a change within the clock's grain cannot hide.
//
// What this does not see: a disk that returns other bytes than were written,
// and whoever can set the system clock, write to the raw device, or act as the
// store's owner: the owner can write to this folder, to the record, and to our
// own binary. To readers that only have the descriptor the file is read-only.
type Store struct {
	dir  string
	boot string // identifies the boot; empty if the system does not say
}

const (
	imageExt  = ".erofs"
	recordExt = ".json"
	prefix    = "sha256:"
)

// OpenStore opens the store in dir, an absolute path, and makes the folder with
// mode 0711 (others may open an image whose digest they know, not list them) if
// it is not there. It is an error if somebody else owns or can write to it.
func OpenStore(dir string) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("cannot open image store %q: the path is not absolute", dir)
	}
	if err := makeDir(filepath.Clean(dir), 0o711); err != nil {
		return nil, fmt.Errorf("cannot open image store: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open image store: %w", err)
	}
	if st := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("cannot open image store %s: it must be a folder that user %d owns and nobody else can write to", dir, os.Geteuid())
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &Store{dir: filepath.Clean(dir), boot: strings.TrimSpace(string(boot))}, nil
}

// makeDir makes dir and what is missing above it.
func makeDir(dir string, mode fs.FileMode) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if up := filepath.Dir(dir); up != dir {
		if err := makeDir(up, 0o755); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, mode) // whatever the umask says
}

func (s *Store) file(digest, ext string) string {
	return filepath.Join(s.dir, strings.TrimPrefix(digest, prefix)+ext)
}

func validDigest(digest string) bool {
	s, ok := strings.CutPrefix(digest, prefix)
	b, err := hex.DecodeString(s)
	return ok && err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}

// Open opens the image with the given digest. It must have been made by this
// store: an image without a record is not found.
func (s *Store) Open(ctx context.Context, digest string) (*Image, error) {
	if !validDigest(digest) {
		return nil, box.Errorf(box.Invalid, "open image", "cannot open image %q: not a digest like sha256:<64 hexadecimal digits>", digest)
	}
	r, err := s.record(digest)
	if err != nil {
		return nil, box.Errorf(box.NotFound, "open image", "cannot open image %s: %w", digest, err)
	}
	return s.open(ctx, digest, r)
}

// Images lists the images in the store, in the order of their digests.
func (s *Store) Images() ([]Info, error) {
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list images: %w", err)
	}
	var infos []Info
	for _, name := range names {
		hash, ok := strings.CutSuffix(name.Name(), imageExt)
		digest := prefix + hash
		if !ok || !validDigest(digest) {
			continue
		}
		st, err := name.Info()
		if err != nil {
			continue // removed meanwhile
		}
		info := Info{Digest: digest, Size: st.Size(), Built: st.ModTime()}
		if r, err := s.record(digest); err == nil {
			info.Name, info.Notes, info.Used = r.Name, r.Notes, r.used
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Remove removes an image and its extracted tree. Descriptors of the image that
// are open stay usable; while a tree is open, it is an error (box.Exhausted),
// and nothing is removed.
func (s *Store) Remove(digest string) error {
	if !validDigest(digest) {
		return box.Errorf(box.Invalid, "remove image", "cannot remove image %q: not a digest", digest)
	}
	if err := s.removeTree(digest); err != nil {
		return err
	}
	if err := os.Remove(s.file(digest, imageExt)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return box.Errorf(box.NotFound, "remove image", "cannot remove image %s: it is not in the store", digest)
		}
		return fmt.Errorf("cannot remove image: %w", err)
	}
	if err := os.Remove(s.file(digest, recordExt)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove image: %w", err)
	}
	return nil
}

// Prune removes the images that nobody opened for the given time, and returns
// their digests.
func (s *Store) Prune(unused time.Duration) ([]string, error) {
	infos, err := s.Images()
	if err != nil {
		return nil, err
	}
	var gone []string
	for _, info := range infos {
		if time.Since(info.lastUsed()) < unused {
			continue
		}
		ok, err := s.removeUnused(info.Digest)
		if err != nil {
			return gone, err
		}
		if ok {
			gone = append(gone, info.Digest)
		}
	}
	return gone, errors.Join(s.sweepOrphans(), s.sweepTrees(), s.removeTemps("tmp-record-", time.Hour))
}

// keepNewest removes the images of one name but the n that were used last.
func (s *Store) keepNewest(name box.ImageName, n int) error {
	infos, err := s.Images()
	if err != nil {
		return err
	}
	infos = slices.DeleteFunc(infos, func(i Info) bool { return i.Name != name })
	slices.SortFunc(infos, func(a, b Info) int { return b.lastUsed().Compare(a.lastUsed()) })
	for _, info := range infos[min(n, len(infos)):] {
		if _, err := s.removeUnused(info.Digest); err != nil {
			return err
		}
	}
	return nil
}

// removeUnused removes an image unless it is in use or gone already.
func (s *Store) removeUnused(digest string) (bool, error) {
	err := s.Remove(digest)
	if kind := box.KindOf(err); err != nil && (kind == box.NotFound || kind == box.Exhausted) {
		return false, nil
	}
	return err == nil, err
}

// removeTemps removes unfinished files that are older than age.
func (s *Store) removeTemps(start string, age time.Duration) error {
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("cannot read image store: %w", err)
	}
	for _, name := range names {
		if st, err := name.Info(); err == nil && strings.HasPrefix(name.Name(), start) && time.Since(st.ModTime()) >= age {
			os.Remove(filepath.Join(s.dir, name.Name()))
		}
	}
	return nil
}

// put stores what write produces, unless it is there already, and returns its
// digest. The caller holds the lock of that name: unfinished files of the same
// name are left over from a builder that died, and are removed.
func (s *Store) put(ctx context.Context, lock string, write func(io.Writer) error) (digest string, err error) {
	if err := s.removeTemps("tmp-"+lock+"-", 0); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(s.dir, "tmp-"+lock+"-*")
	if err != nil {
		return "", fmt.Errorf("cannot store image: %w", err)
	}
	defer func() {
		tmp.Close()
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	sum := sha256.New()
	if err := write(&ctxWriter{ctx, io.MultiWriter(tmp, sum)}); err != nil {
		return "", err
	}
	digest = prefix + hex.EncodeToString(sum.Sum(nil))
	if _, err := os.Lstat(s.file(digest, imageExt)); err == nil {
		os.Remove(tmp.Name())
		return digest, nil
	}
	if err := tmp.Chmod(0o444); err != nil {
		return "", fmt.Errorf("cannot store image: %w", err)
	}
	if err := tmp.Sync(); err != nil {
		return "", fmt.Errorf("cannot store image: %w", err)
	}
	if err := os.Rename(tmp.Name(), s.file(digest, imageExt)); err != nil {
		return "", fmt.Errorf("cannot store image: %w", err)
	}
	return digest, s.syncDir()
}

func (s *Store) syncDir() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("cannot store image: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot store image: %w", err)
	}
	return nil
}

// lock takes an exclusive lock among all processes that use the store, and
// waits for it until ctx ends. The system drops it if this process dies.
func (s *Store) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock-"+name), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock image store: %w", err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { release(f) }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("cannot lock image store: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("cannot lock image store: %w", context.Cause(ctx))
		}
	}
}

// ctxWriter fails once its context has ended.
type ctxWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c *ctxWriter) Write(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.w.Write(b)
}
