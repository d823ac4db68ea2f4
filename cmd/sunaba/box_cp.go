package main

import (
	"archive/tar"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/client"
	"github.com/sunaba-dev/sunaba/internal/files"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

func copyFlags(fs *flag.FlagSet, b *boxCall) { fs.BoolVar(&b.recurse, "r", false, "") }

// inBox splits BOX:PATH.
func inBox(arg string) (box.ID, string, bool) {
	name, p, ok := strings.Cut(arg, ":")
	id := box.ID(name)
	return id, p, ok && id.Valid()
}

func boxCopy(ctx context.Context, b *boxCall) (int, error) {
	from, to := b.args[0], b.args[1]
	fid, fpath, out := inBox(from)
	tid, tpath, in := inBox(to)
	if in == out {
		return 0, box.Errorf(box.Invalid, "cp", "cannot copy %s to %s: one of them, and not both, is to be BOX:PATH", from, to)
	}
	id, p := fid, fpath
	if in {
		id, p = tid, tpath
	}
	c := copying{ctx: ctx, g: nil, quiet: b.format == "json"}
	g, err := b.c.Guest(ctx, box.Caller{}, id, box.ScopeWrite)
	if err != nil {
		return 0, err
	}
	c.g = g.(*client.Guest)
	if !path.IsAbs(p) {
		i, err := b.c.Inspect(ctx, box.Caller{}, id)
		if err != nil {
			return 0, err
		}
		slash := strings.HasSuffix(p, "/") && p != "/"
		if p = path.Join(i.Policy.Workdir, p); slash {
			p += "/"
		}
	}
	switch {
	case in && b.recurse:
		err = c.folderIn(from, p)
	case in:
		err = c.fileIn(from, p)
	case b.recurse:
		err = c.folderOut(p, to)
	default:
		err = c.fileOut(p, to)
	}
	if err != nil {
		return 0, err
	}
	if out && to == "-" { // standard output has the file
		for _, n := range c.notes {
			say(n)
		}
		return 0, nil
	}
	return 0, b.show(map[string]any{"files": c.files, "bytes": c.bytes, "notes": c.notes}, func() {
		for _, n := range c.notes {
			say(n)
		}
	})
}

// copying is one copy. What comes out of a box is hostile: names are resolved by
// descriptor, links are never followed and never made.
type copying struct {
	ctx   context.Context
	g     *client.Guest
	quiet bool
	files int64
	bytes int64
	notes []string
}

func (c *copying) fileIn(name, to string) error {
	var in io.Reader = os.Stdin
	o := box.WriteOptions{Parents: true}
	if name != "-" {
		f, st, err := hostfs.OpenInput(name)
		if err != nil {
			return invalid(err)
		}
		defer f.Close()
		in = f
		if st.Mode()&0o111 != 0 {
			o.Mode = 0o755
		}
	}
	if name != "-" && (strings.HasSuffix(to, "/") || c.isFolder(to)) {
		to = path.Join(to, filepath.Base(name))
	}
	e, err := c.g.Write(c.ctx, to, o, in)
	c.files, c.bytes = 1, e.Size
	return err
}

func (c *copying) isFolder(p string) bool {
	e, err := c.g.Stat(c.ctx, p, true)
	return err == nil && e.Kind == box.KindDir
}

// target opens the folder that a result goes into, and says under which name.
func target(to, base string) (*hostfs.Dir, string, error) {
	if st, err := os.Stat(to); err == nil && st.IsDir() || strings.HasSuffix(to, "/") {
		dir, err := hostfs.OpenDir(to)
		return dir, base, err
	}
	dir, err := hostfs.OpenDir(filepath.Dir(to))
	return dir, filepath.Base(to), err
}

func (c *copying) fileOut(p, to string) error {
	if to == "-" {
		return c.show(p)
	}
	dir, name, err := target(to, path.Base(p))
	if err != nil {
		return invalid(err)
	}
	defer dir.Close()
	e, r, err := c.g.Read(c.ctx, p, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	return c.save(dir, name, fs.FileMode(e.Mode), r)
}

// show writes a file of a box to standard output: cleaned, if that is a terminal.
func (c *copying) show(p string) error {
	_, r, err := c.g.Read(c.ctx, p, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	out := direct(os.Stdout, func(error) {})
	c.bytes, err = io.Copy(&out, r)
	out.close()
	return err
}

func (c *copying) save(dir *hostfs.Dir, name string, mode fs.FileMode, r io.Reader) error {
	f, err := dir.Create(name, mode&0o755|0o600)
	if err != nil {
		return invalid(err)
	}
	n, err := io.Copy(f, r)
	if err != nil {
		f.Abort()
		return fmt.Errorf("cannot copy to %s: %w", oneLine(name), err)
	}
	c.files++
	c.bytes += n
	return f.Commit()
}

func (c *copying) folderOut(p, to string) error {
	dir, err := openOut(to)
	if err != nil {
		return invalid(err)
	}
	defer dir.Close()
	r, w := io.Pipe()
	budget := files.DefaultBudget()
	packed := make(chan error, 1)
	go func() {
		err := c.g.Pack(c.ctx, p, budget.Bytes, w)
		w.CloseWithError(err)
		packed <- err
	}()
	skipped, err := files.ReadArchive(r, budget, func(name string, h files.Header, r io.Reader) error {
		if h.Skipped != "" {
			c.notes = append(c.notes, fmt.Sprintf("left out %s: %s", oneLine(name), oneLine(h.Skipped)))
			return nil
		}
		return c.save(dir, name, h.Mode, r)
	})
	r.Close()
	if perr := <-packed; perr != nil && (err == nil || box.KindOf(perr) != box.Fault) {
		err = perr // the archive is only cut short by it
	}
	c.notes = append(c.notes, skipped.Notes()...)
	return err
}

// folderIn sends a folder. Links go as links, and lead where they lead in the
// box; what is neither file, folder nor link is left out.
func (c *copying) folderIn(name, to string) error {
	root, err := os.OpenRoot(name)
	if err != nil {
		return invalid(fmt.Errorf("cannot open folder: %w", err))
	}
	defer root.Close()
	if _, err := c.g.MakeDir(c.ctx, to, box.MakeDirOptions{Parents: true}); err != nil {
		return err
	}
	r, w := io.Pipe()
	read := make(chan struct{})
	go func() {
		defer close(read)
		t := tar.NewWriter(w)
		err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
			if err != nil || p == "." {
				return err
			}
			return c.member(t, root, p)
		})
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	c.files, c.bytes, err = c.g.Unpack(c.ctx, to, "", r)
	r.Close()
	<-read // what it noted is ours only then
	return err
}

func (c *copying) member(t *tar.Writer, root *os.Root, p string) error {
	st, err := root.Lstat(p)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: p, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	switch {
	case st.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, p+"/"
		return t.WriteHeader(h)
	case st.Mode().Type() == fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(p); err != nil {
			return err
		}
		return t.WriteHeader(h)
	case !st.Mode().IsRegular():
		c.notes = append(c.notes, "left out "+oneLine(p)+": it is no file, folder or link")
		return nil
	}
	f, err := root.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("cannot copy %s: it was exchanged meanwhile", p)
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(t, f, st.Size())
	return err
}
