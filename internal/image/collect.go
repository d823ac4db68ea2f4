package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// collector adds files of the host to a tree under the paths that they really
// have: links among the folders of a path (/bin -> usr/bin) are followed, so
// that a file listed under two names is there once.
type collector struct {
	*tree
	root    string            // "" except in tests
	real    map[string]string // folder -> where it really is
	seen    map[string]bool   // done by addPath
	cache   *ldCache          // nil if the host has none
	skipped int               // files that not everybody may read
	missing []string          // libraries that were not found
}

func newCollector(t *tree, root string) *collector {
	c := &collector{tree: t, root: root, real: map[string]string{"/": "/"}, seen: map[string]bool{}}
	if b, err := os.ReadFile(root + "/etc/ld.so.cache"); err == nil {
		c.cache, _ = parseLdCache(b) // without it the default folders are searched
	}
	return c
}

// place returns the real path of p: its folder with all links followed, and
// its own name, which may be a link.
func (c *collector) place(p string) string {
	if p == "/" {
		return p
	}
	return path.Join(c.realDir(path.Dir(p), 40), path.Base(p))
}

func (c *collector) realDir(dir string, depth int) string {
	if to, ok := c.real[dir]; ok {
		return to
	}
	at := path.Join(c.realDir(path.Dir(dir), depth), path.Base(dir))
	if to, err := os.Readlink(c.root + at); err == nil && depth > 0 {
		at = c.realDir(absLink(at, to), depth-1)
	}
	c.real[dir] = at
	return at
}

// excluded reports whether a package's file is left out: what is not below
// /usr (an /etc is made otherwise; /var and the like start empty), and
// documentation, translations and a few large files that hardly anyone uses.
func excluded(p string) bool {
	if !below(p, "/usr") {
		return !below(p, "/bin") && !below(p, "/sbin") && !below(p, "/lib") && !below(p, "/lib64")
	}
	for _, dir := range []string{
		"/usr/share/doc", "/usr/share/man", "/usr/share/info", "/usr/share/locale", "/usr/share/lintian",
		"/usr/share/bug", "/usr/share/doc-base", "/usr/share/gtk-doc", "/usr/share/i18n",
		"/usr/include/node", // 47 MB that only building addons in C needs
	} {
		if below(p, dir) {
			return true
		}
	}
	if strings.Contains(p, "-lto-dump-") {
		return true // 32 MB for developers of the compiler
	}
	return strings.HasPrefix(p, "/usr/lib/locale/") && !below(p, "/usr/lib/locale/C.utf8")
}

// addFile adds what lies at from on the host as to, with all owners 0:0 and
// without setuid and setgid bits. What not everybody may read, what is not a
// file, folder or link, and what is not there is passed over.
func (c *collector) addFile(from, to string) error {
	info, err := os.Lstat(c.root + from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the administrator or a dpkg filter removed it
	}
	if err != nil {
		return fmt.Errorf("cannot make image: %w", err)
	}
	perm := info.Mode().Perm()
	if old, ok := c.entries[to]; ok && (!old.Mode.IsDir() || info.IsDir()) {
		return nil // two packages share it, or it is part of the skeleton
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		if perm&0o005 == 0o005 {
			c.dir(to, 0o755, 0)
		}
		return nil
	case fs.ModeSymlink:
		target, err := os.Readlink(c.root + from)
		if err != nil {
			return fmt.Errorf("cannot make image: %w", err)
		}
		return c.link(to, target)
	case 0:
		if perm&0o004 == 0 {
			c.skipped++
			return nil
		}
		return c.add(erofs.Entry{Path: to, Mode: perm & 0o755, Size: info.Size(), Open: c.opener(from, 0)})
	}
	return nil
}

// opener returns a function that opens a regular file at an offset.
func (c *collector) opener(from string, offset int64) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		f, err := os.OpenFile(c.root+from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			f.Close()
			return nil, errors.Join(err, fmt.Errorf("%s is no longer a regular file", from))
		}
		_, err = f.Seek(offset, io.SeekStart)
		return f, err
	}
}

// addPath adds a file or folder that the operator named, whatever its links
// lead to, and the libraries and loaders that its ELF files need.
func (c *collector) addPath(p string) error {
	p = c.place(p)
	if c.seen[p] {
		return nil
	}
	c.seen[p] = true
	if to, err := os.Readlink(c.root + p); err == nil && below(p, "/etc/alternatives") {
		return c.addPath(absLink(p, to)) // the link itself comes from addEtc
	}
	if private(p) != "" {
		return nil // a link led here
	}
	if err := c.addFile(p, p); err != nil {
		return err
	}
	switch e := c.entries[p]; {
	case e.Path == "":
		return nil
	case e.Mode.IsDir():
		names, err := os.ReadDir(c.root + p)
		if err != nil {
			return fmt.Errorf("cannot make image: %w", err)
		}
		for _, n := range names {
			if err := c.addPath(path.Join(p, n.Name())); err != nil {
				return err
			}
		}
	case e.Mode.Type() == fs.ModeSymlink:
		return c.addPath(absLink(p, e.Link))
	case e.Size > 0:
		return c.addNeeds(p)
	}
	return nil
}

func (c *collector) addNeeds(p string) error {
	n := readELF(c.root, p)
	if n == nil {
		return nil
	}
	if n.interp != "" {
		if err := c.addPath(path.Clean("/" + n.interp)); err != nil {
			return err
		}
	}
	for _, lib := range n.libs {
		found := findLibrary(c.root, c.cache, n, lib)
		if found == "" {
			c.missing = append(c.missing, fmt.Sprintf("%s, which %s needs, was not found", lib, p))
			continue
		}
		if err := c.addPath(path.Clean(found)); err != nil {
			return err
		}
	}
	return nil
}

// pycHeader is the header of a Python cache file: a magic number that stays,
// flags, and 8 bytes by which it is matched to its source (PEP 552).
const pycHeader = 16

// addBytecode adds Python's cached bytecode for the sources that are in the
// image, because a box cannot write it and would compile the library again at
// each start. In the copy, the header says that the cache is valid whatever
// the source's time is, as times in an image are fixed.
func (c *collector) addBytecode() error {
	dirs := map[string]bool{}
	for name := range c.entries {
		if strings.HasSuffix(name, ".py") {
			dirs[path.Dir(name)] = true
		}
	}
	for dir := range dirs {
		names, err := filepath.Glob(c.root + dir + "/__pycache__/*.cpython-*.pyc")
		if err != nil {
			continue // the folder's name is a bad pattern
		}
		for _, name := range names {
			pyc := strings.TrimPrefix(name, c.root)
			stem, _, _ := strings.Cut(path.Base(pyc), ".cpython-")
			if _, ok := c.entries[path.Join(dir, stem+".py")]; !ok || strings.Contains(pyc, ".opt-") {
				continue
			}
			if err := c.addPyc(pyc, path.Join(dir, stem+".py")); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collector) addPyc(pyc, source string) error {
	r, err := c.opener(pyc, 0)()
	if err != nil {
		return nil // not for us
	}
	defer r.Close()
	header := make([]byte, pycHeader)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil
	}
	cached, err := os.Lstat(c.root + pyc)
	if err != nil || cached.Mode().Perm()&0o004 == 0 {
		return nil
	}
	src, err := os.Lstat(c.root + source)
	if err != nil || !pycFits(header, src) {
		return nil
	}
	clear(header[4:])
	header[4] = 1 // matched by hash, and the hash is not checked
	return c.add(erofs.Entry{
		Path: pyc, Mode: 0o644, Size: cached.Size(),
		Open: func() (io.ReadCloser, error) {
			f, err := c.opener(pyc, pycHeader)()
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader(string(header)), f), f}, nil
		},
	})
}

// pycFits reports whether a cache was made from the source as it is now: no
// flags, then the source's modification time and size, each modulo 2^32.
func pycFits(header []byte, src fs.FileInfo) bool {
	le := binary.LittleEndian
	return le.Uint32(header[4:]) == 0 && le.Uint32(header[8:]) == uint32(src.ModTime().Unix()) &&
		le.Uint32(header[12:]) == uint32(src.Size())
}
