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
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// BaseOptions says what the base image holds.
type BaseOptions struct {
	// Packages are installed Debian packages; what they depend on comes with
	// them. Those not installed are named in Image.Notes. DefaultPackages()
	// if nil. Not used on a host without dpkg.
	Packages []string
	// Paths are patterns (path/filepath.Match) of files and folders to take on
	// a host without dpkg. DefaultPaths() if nil.
	Paths []string
	// ExtraPaths are further files and folders of the host, with the shared
	// libraries that their ELF files need. They must exist, outside the
	// folders that hold private or changing data (/home, /etc, /var, ...).
	ExtraPaths []string
	Init       []byte // program at InitPath; none if empty
	Hostname   string // DefaultHostname if empty
	Workdir    string // DefaultWorkdir if empty
	MaxSize    int64  // bytes; 4 GiB if zero
	// Rebuild makes the image again even if one was made from the same
	// package versions; needed only after files were changed behind dpkg's back.
	Rebuild bool
}

// Progress is told how far a long operation is: bytes done of total (both 0
// while that is not known yet) and what is worked on. Calls do not overlap.
type Progress func(done, total int64, what string)

// baseVersion changes whenever the same inputs give other bytes.
const baseVersion = 2

// Base returns the base image for the options, and makes it if the store has
// none from the same package versions. Making it reads every file once and
// takes seconds to a minute; concurrent callers, also in other processes, wait
// for the first. progress may be nil.
func (s *Store) Base(ctx context.Context, opts BaseOptions, progress Progress) (*Image, error) {
	if progress == nil {
		progress = func(int64, int64, string) {}
	}
	if opts.plain() && !opts.Rebuild {
		if img, ok := s.again(ctx, box.ImageBase); ok {
			return img, nil
		}
	}
	started := time.Now()
	b, err := planBase("", opts)
	if err != nil {
		return nil, box.Errorf(box.Invalid, "make base image", "%w", err)
	}
	img, err := s.base(ctx, opts, b, progress)
	if err == nil && opts.plain() && b.dpkg != nil {
		s.remember(box.ImageBase, started, b.looked, img.Digest)
	}
	return img, short("make base image", err)
}

// plain reports whether every option that decides the image is at its default.
func (o BaseOptions) plain() bool {
	return o.Packages == nil && o.Paths == nil && o.ExtraPaths == nil && o.Init == nil && o.MaxSize == 0 &&
		(o.Hostname == "" || o.Hostname == DefaultHostname) && (o.Workdir == "" || o.Workdir == DefaultWorkdir)
}

func (s *Store) base(ctx context.Context, opts BaseOptions, b *base, progress Progress) (*Image, error) {
	if digest, ok := s.made(b.key); ok && !opts.Rebuild {
		img, err := s.open(ctx, digest, b.record)
		if err == nil || box.KindOf(err) != box.NotFound {
			return img, err
		}
	}
	progress(0, 0, "waiting for another builder")
	unlock, err := s.lock(ctx, "base")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if digest, ok := s.made(b.key); ok && !opts.Rebuild {
		img, err := s.open(ctx, digest, b.record)
		if err == nil || box.KindOf(err) != box.NotFound {
			return img, err
		}
	}
	progress(0, 0, "reading package lists")
	if err := b.collect(); err != nil {
		return nil, box.Errorf(box.Fault, "make base image", "%w", err)
	}
	digest, err := s.put(ctx, "base", func(w io.Writer) error {
		_, err := erofs.Write(w, watched(b.list(), progress), b.maxSize)
		return err
	})
	if err != nil {
		return nil, box.Errorf(box.Fault, "make base image", "%w", err)
	}
	if err := s.setMade(b.key, digest); err != nil {
		return nil, err
	}
	progress(0, 0, "verifying")
	return s.open(ctx, digest, b.record)
}

// base is a planned base image.
type base struct {
	*collector
	dpkg     *dpkg // nil on a host without
	packages []*pkg
	paths    []string // to add with what they need
	key      string   // hash of everything that decides the bytes
	record   *record
	maxSize  int64
}

// planBase reads what decides whether an image must be made: some milliseconds.
func planBase(root string, opts BaseOptions) (*base, error) {
	if err := placeNames(&opts.Hostname, &opts.Workdir); err != nil {
		return nil, err
	}
	b := &base{collector: newCollector(newTree(), root), maxSize: opts.MaxSize}
	if b.maxSize <= 0 {
		b.maxSize = 4 << 30
	}
	b.record = &record{Name: box.ImageBase, Path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := b.addSkeleton(opts.Hostname, opts.Workdir, "/bin/sh", opts.Init); err != nil {
		return nil, err
	}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		b.look(root + dir)
		if err := b.addFile(dir, dir); err != nil {
			return nil, err
		}
	}
	if err := b.addEtc(root, false); err != nil {
		return nil, err
	}
	if err := b.planSources(root, opts); err != nil {
		return nil, err
	}
	return b, b.setKey()
}

// planSources chooses the packages and paths.
func (b *base) planSources(root string, opts BaseOptions) error {
	b.look(root + dpkgDir + "/status")
	d, err := readDpkg(root)
	switch {
	case err == nil:
		b.dpkg = d
		names := opts.Packages
		if names == nil {
			names = DefaultPackages()
		}
		var absent []string
		b.packages, absent = d.closure(names)
		if len(absent) > 0 {
			slices.Sort(absent)
			b.record.Notes = append(b.record.Notes, "packages that are not installed on this host: "+strings.Join(absent, ", "))
		}
	case errors.Is(err, fs.ErrNotExist):
		patterns := opts.Paths
		if patterns == nil {
			patterns = DefaultPaths()
		}
		for _, p := range patterns {
			if !cleanAbs(p) || p == "/" || private(p) != "" {
				return fmt.Errorf("cannot take %q into the base image: it is not an absolute, clean path outside the folders with private data", p)
			}
			names, err := filepath.Glob(root + p)
			if err != nil {
				return fmt.Errorf("cannot take %q into the base image: %w", p, err)
			}
			for _, name := range names {
				b.paths = append(b.paths, strings.TrimPrefix(name, root))
			}
		}
		if len(b.paths) == 0 {
			return errors.New("cannot make base image: this host has no dpkg and none of the paths is there")
		}
	default:
		return fmt.Errorf("cannot read package status: %w", err)
	}
	for _, p := range opts.ExtraPaths {
		if !cleanAbs(p) || p == "/" || private(p) != "" || private(b.place(p)) != "" {
			return fmt.Errorf("cannot take %q into the base image: it is not an absolute, clean path outside the folders with private data", p)
		}
		if _, err := os.Stat(root + p); err != nil {
			return fmt.Errorf("cannot take %q into the base image: %w", p, err)
		}
		b.paths = append(b.paths, p)
	}
	return nil
}

// setKey hashes the skeleton's bytes, the packages' versions, and the size and
// time of every file below the paths.
func (b *base) setKey() error {
	sum := sha256.New()
	if _, err := erofs.Write(sum, b.list(), 0); err != nil {
		return err
	}
	inputs := []any{baseVersion, b.record.Notes}
	for _, p := range b.packages {
		inputs = append(inputs, []string{p.name, p.arch, p.version})
	}
	for _, p := range b.paths {
		inputs = append(inputs, p)
		err := filepath.WalkDir(b.root+b.place(p), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // it is not in the image either
			}
			if info, err := d.Info(); err == nil {
				inputs = append(inputs, name, info.Size(), info.Mode(), info.ModTime().UnixNano())
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", p, err)
		}
	}
	if err := json.NewEncoder(sum).Encode(inputs); err != nil {
		return err
	}
	b.key = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// collect completes the tree.
func (b *base) collect() error {
	if b.dpkg != nil {
		if err := b.addPackages(); err != nil {
			return err
		}
	}
	for _, p := range b.paths {
		if err := b.addPath(p); err != nil {
			return err
		}
	}
	if err := b.addBytecode(); err != nil {
		return err
	}
	if err := b.settleAlternatives(); err != nil {
		return err
	}
	if b.cache != nil {
		kept := b.cache.filter(func(p string) bool { return b.entries[b.place(p)].Path != "" })
		if err := b.file("/etc/ld.so.cache", 0o644, kept.bytes()); err != nil {
			return err
		}
	}
	if b.skipped > 0 {
		b.record.Notes = append(b.record.Notes, fmt.Sprintf("files left out because not everybody on the host may read them: %d", b.skipped))
	}
	slices.Sort(b.missing)
	b.record.Notes = append(b.record.Notes, slices.Compact(b.missing)...)
	return nil
}

func (b *base) addPackages() error {
	diverted, err := b.dpkg.diversions()
	if err != nil {
		return err
	}
	chosen := map[string]bool{}
	for _, p := range b.packages {
		chosen[p.name] = true
	}
	for _, p := range b.packages {
		files, err := b.dpkg.files(p)
		if err != nil {
			return err
		}
		for _, f := range files {
			from, to := b.place(f), b.place(f)
			if d, ok := diverted[f]; ok && d.by != p.name && cleanAbs(d.to) {
				from = b.place(d.to)
				if chosen[d.by] {
					to = from // both are in the image, as they are on the host
				}
			}
			if excluded(to) {
				continue
			}
			if err := b.addFile(from, to); err != nil {
				return err
			}
		}
	}
	// Made by dash's installation and owned by no package.
	sh := b.place("/bin/sh")
	return b.addFile(sh, sh)
}

// settleAlternatives lets each alternative lead to what is in the image: where
// the host's leads, or else to the best of those that could stand in. It drops
// the others, and adds the links that lead to the kept ones, such as /usr/bin/awk.
func (b *base) settleAlternatives() error {
	all := map[string]alternative{}
	if b.dpkg != nil {
		var err error
		if all, err = b.dpkg.alternatives(); err != nil {
			return err
		}
	}
	pending := map[string]erofs.Entry{}
	for name, e := range b.entries {
		if path.Dir(name) == "/etc/alternatives" {
			pending[name] = e
			delete(b.entries, name)
		}
	}
	has := func(p string) bool { return cleanAbs(p) && b.entries[b.place(p)].Path != "" }
	// One alternative may lead to another one's link, so until nothing changes.
	settle := func(to func(name string, e erofs.Entry) string) error {
		for changed := true; changed; {
			changed = false
			for name, e := range pending {
				if e.Link = to(name, e); e.Link == "" {
					continue
				}
				delete(pending, name)
				b.entries[name] = e
				changed = true
				if at := all[path.Base(name)].link; cleanAbs(at) && !excluded(b.place(at)) {
					if err := b.addFile(b.place(at), b.place(at)); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	err := settle(func(name string, e erofs.Entry) string {
		if has(absLink(name, e.Link)) {
			return e.Link
		}
		return ""
	})
	if err != nil {
		return err
	}
	return settle(func(name string, _ erofs.Entry) string {
		paths := all[path.Base(name)].paths
		if i := slices.IndexFunc(paths, has); i >= 0 {
			return paths[i]
		}
		return ""
	})
}

// watched wraps the entries' contents so that progress is told of each file
// and of each MiB.
func watched(entries []erofs.Entry, progress Progress) []erofs.Entry {
	var done, total, told int64
	for _, e := range entries {
		total += e.Size
	}
	for i := range entries {
		e := &entries[i]
		open := e.Open
		if open == nil {
			continue
		}
		name := e.Path
		e.Open = func() (io.ReadCloser, error) {
			r, err := open()
			if err != nil {
				return nil, err
			}
			return &watchedFile{r, func(n int) {
				if done += int64(n); done-told >= 1<<20 || done == total {
					told = done
					progress(done, total, name)
				}
			}}, nil
		}
	}
	return entries
}

type watchedFile struct {
	io.ReadCloser
	read func(int)
}

func (f *watchedFile) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	f.read(n)
	return n, err
}
