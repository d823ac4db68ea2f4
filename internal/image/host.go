package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// HostOptions says what the skeleton over the host's /usr holds. Every
// different value makes an image of its own.
type HostOptions struct {
	// Init is the program at InitPath; none if empty.
	Init     []byte
	Hostname string // DefaultHostname if empty
	// Workdir is an absolute path, owned by the ordinary user;
	// DefaultWorkdir if empty.
	Workdir string
	// Mounts get a mount point at their Target: a folder, or an empty file if
	// Source is a file. A target in a folder that is the host's own must be
	// there already.
	Mounts []box.Mount
	// Folders get one, too, for what is no file or folder of the host's.
	Folders []string
	// ExtraPrefixes are further host folders to show read-only at the same
	// path, such as /opt/tools. Their bin folders are appended to PATH.
	ExtraPrefixes []string
}

// keepSkeletons bounds how many skeletons stay in the store (1.2 MB each):
// whoever chooses mount points, perhaps a model, must not fill the disk with
// them.
const keepSkeletons = 32

// Host returns the skeleton image for the options, and makes it if the store
// does not have it; then those that were longest unused make room. It fits the
// host as it is now: a few hundred small files are read, or at least found to
// be those that were read last time.
func (s *Store) Host(ctx context.Context, opts HostOptions) (*Image, error) {
	if opts.plain() {
		if img, ok := s.again(ctx, box.ImageHost); ok {
			return img, nil
		}
	}
	started := time.Now()
	t, r, err := hostTree("", opts)
	if err != nil {
		return nil, box.Errorf(box.Invalid, "make host image", "%w", err)
	}
	img, err := s.host(ctx, t, r)
	if err == nil && opts.plain() {
		s.remember(box.ImageHost, started, t.looked, img.Digest)
	}
	return img, short("make host image", err)
}

// plain reports whether every option is at its default.
func (o HostOptions) plain() bool {
	return o.Init == nil && len(o.Mounts) == 0 && len(o.Folders) == 0 && len(o.ExtraPrefixes) == 0 &&
		(o.Hostname == "" || o.Hostname == DefaultHostname) && (o.Workdir == "" || o.Workdir == DefaultWorkdir)
}

func (s *Store) host(ctx context.Context, t *tree, r *record) (*Image, error) {
	// Making the bytes costs less than finding out what changed.
	entries, sum := t.list(), sha256.New()
	if _, err := erofs.Write(sum, entries, 0); err != nil {
		return nil, box.Errorf(box.Invalid, "make host image", "%w", err)
	}
	digest := prefix + hex.EncodeToString(sum.Sum(nil))
	img, err := s.open(ctx, digest, r)
	if box.KindOf(err) != box.NotFound {
		return img, err
	}
	unlock, err := s.lock(ctx, "host")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := s.put(ctx, "host", func(w io.Writer) error {
		_, err := erofs.Write(w, entries, 0)
		return err
	}); err != nil {
		return nil, err
	}
	if img, err = s.open(ctx, digest, r); err != nil {
		return nil, err
	}
	if err := s.keepNewest(box.ImageHost, keepSkeletons); err != nil {
		img.File.Close()
		return nil, err
	}
	return img, nil
}

// hostTree describes the skeleton for the host whose root is at root, which is
// empty except in tests.
func hostTree(root string, opts HostOptions) (*tree, *record, error) {
	if err := placeNames(&opts.Hostname, &opts.Workdir); err != nil {
		return nil, nil, err
	}
	t := newTree()
	r := &record{Name: box.ImageHost, Path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	bind := func(dir string) {
		t.dir(dir, 0o755, 0)
		r.Binds = append(r.Binds, box.Mount{Source: dir, Target: dir, ReadOnly: true})
	}
	t.look(root + "/usr")
	if info, err := os.Lstat(root + "/usr"); err != nil || !info.IsDir() {
		return nil, nil, fmt.Errorf("cannot make host image: /usr is not a folder of this host")
	}
	bind("/usr")
	// Since usr-merge these are links into /usr; elsewhere they are folders.
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		t.look(root + dir)
		info, err := os.Lstat(root + dir)
		switch {
		case err != nil:
		case info.IsDir():
			bind(dir)
		case info.Mode().Type() == fs.ModeSymlink:
			to, err := os.Readlink(root + dir)
			if err != nil || !below(absLink(dir, to), "/usr") {
				return nil, nil, fmt.Errorf("cannot make host image: %s is a link that does not lead below /usr", dir)
			}
			if err := t.link(dir, to); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, dir := range opts.ExtraPrefixes {
		if err := checkPrefix(root, dir); err != nil {
			return nil, nil, err
		}
		if bound(r.Binds, dir) {
			continue
		}
		bind(dir)
		if info, err := os.Stat(root + dir + "/bin"); err == nil && info.IsDir() {
			r.Path += ":" + dir + "/bin"
		}
	}
	if bound(r.Binds, opts.Workdir) {
		return nil, nil, fmt.Errorf("cannot make host image: working directory %s is in a read-only folder of the host", opts.Workdir)
	}
	shell := "/bin/sh"
	t.look(root + "/usr/bin/bash")
	if _, err := os.Stat(root + "/usr/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	if err := t.addSkeleton(opts.Hostname, opts.Workdir, shell, opts.Init); err != nil {
		return nil, nil, err
	}
	if err := t.addEtc(root, true); err != nil {
		return nil, nil, err
	}
	for _, m := range opts.Mounts {
		source, err := os.Stat(root + m.Source)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot place mount point %q: %w", m.Target, err)
		}
		if err := t.addMountPoint(root, m.Target, source.IsDir(), r.Binds); err != nil {
			return nil, nil, err
		}
	}
	for _, target := range opts.Folders {
		if err := t.addMountPoint(root, target, true, r.Binds); err != nil {
			return nil, nil, err
		}
	}
	return t, r, nil
}

func cleanAbs(p string) bool { return path.IsAbs(p) && path.Clean(p) == p }

func bound(binds []box.Mount, p string) bool {
	for _, b := range binds {
		if below(p, b.Target) {
			return true
		}
	}
	return false
}

// private returns the folder with private or changing contents that p is in,
// or "". Nothing of these becomes part of an image, except the parts of /etc
// that etcFiles names.
func private(p string) string {
	for _, dir := range []string{"/home", "/root", "/etc", "/proc", "/sys", "/dev", "/run", "/var", "/tmp", "/boot", "/lost+found", "/.sunaba"} {
		if below(p, dir) {
			return dir
		}
	}
	return ""
}

// checkPrefix refuses folders that hold more than programs.
func checkPrefix(root, dir string) error {
	refuse := func(why string) error {
		return fmt.Errorf("cannot show host folder %q: %s", dir, why)
	}
	if !cleanAbs(dir) || strings.Contains(dir, ":") {
		return refuse("the path must be absolute and clean, without a colon")
	}
	if dir == "/" {
		return refuse("that is the whole host")
	}
	if holder := private(dir); holder != "" {
		return refuse("folders in " + holder + " are not shown as part of an image; mount what is needed")
	}
	// Every component is looked at, so that no link leads elsewhere.
	for p := dir; p != "/"; p = path.Dir(p) {
		info, err := os.Lstat(root + p)
		if err != nil {
			return refuse(err.Error())
		}
		if !info.IsDir() {
			return refuse(p + " is not a real folder")
		}
	}
	return nil
}

func (t *tree) addMountPoint(root, target string, dir bool, binds []box.Mount) error {
	refuse := func(why string) error {
		return fmt.Errorf("cannot place mount point %q: %s", target, why)
	}
	if !cleanAbs(target) || target == "/" || below(target, "/.sunaba") {
		return refuse("the path must be absolute and clean, and neither / nor in /.sunaba")
	}
	if bound(binds, target) {
		there, err := os.Stat(root + target)
		if err != nil || there.IsDir() != dir {
			return refuse("it is in a read-only folder of the host, and nothing of that kind is there")
		}
		return nil
	}
	for p := target; p != "/"; p = path.Dir(p) {
		if old, ok := t.entries[p]; ok {
			if why := inTheWay(target, p, old.Mode, dir); why != "" {
				return refuse(why)
			}
		}
	}
	if _, ok := t.entries[target]; ok {
		return nil
	}
	if dir {
		t.dir(target, 0o755, 0)
		return nil
	}
	return t.file(target, 0o444, nil)
}
