package servertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// node is a file or folder.
type node struct {
	kind box.FileKind
	data []byte
	mode uint32
	at   time.Time
}

type watch struct {
	path      string
	recursive bool
	changes   chan box.Change
}

func (n *node) entry(p string) box.Entry {
	return box.Entry{Path: p, Kind: n.kind, Size: int64(len(n.data)), Mode: n.mode, UID: 1000, GID: 1000, Modified: n.at}
}

// enter begins a call that concerns files. The lock is held until leave.
func (g *Guest) enter(ctx context.Context) (leave func(), err error) {
	_, cancel, err := g.in(ctx)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	return func() { g.mu.Unlock(); cancel() }, nil
}

func (g *Guest) node(p string) (*node, error) {
	if n := g.files[path.Clean(p)]; n != nil {
		return n, nil
	}
	return nil, box.Errorf(box.NotFound, "find file", "cannot find %q: no such file", p)
}

func (g *Guest) changed(p string, what box.ChangeKind) {
	for w := range g.watches {
		rel, below := strings.CutPrefix(p, strings.TrimSuffix(w.path, "/")+"/")
		if below && (w.recursive || !strings.Contains(rel, "/")) {
			select {
			case w.changes <- box.Change{Path: rel, What: what}:
			default:
			}
		}
	}
}

// Stat implements box.Guest.
func (g *Guest) Stat(ctx context.Context, p string, _ bool) (box.Entry, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return box.Entry{}, err
	}
	defer leave()
	n, err := g.node(p)
	if err != nil {
		return box.Entry{}, err
	}
	return n.entry(p), nil
}

// List implements box.Guest.
func (g *Guest) List(ctx context.Context, p string, depth, most int) ([]box.Entry, bool, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	if n, err := g.node(p); err != nil {
		return nil, false, err
	} else if n.kind != box.KindDir {
		return nil, false, box.Errorf(box.Invalid, "list", "cannot list %q: it is no folder", p)
	}
	var all []box.Entry
	for _, name := range slices.Sorted(maps.Keys(g.files)) {
		rel, below := strings.CutPrefix(name, strings.TrimSuffix(path.Clean(p), "/")+"/")
		if below && rel != "" && strings.Count(rel, "/") < depth {
			all = append(all, g.files[name].entry(name))
		}
	}
	if len(all) > most {
		return all[:most], true, nil
	}
	return all, false, nil
}

// MakeDir implements box.Guest.
func (g *Guest) MakeDir(ctx context.Context, p string, o box.MakeDirOptions) (bool, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	if g.files[path.Clean(p)] != nil {
		if o.Parents {
			return false, nil
		}
		return false, box.Errorf(box.Conflict, "make folder", "cannot make %q: it is there", p)
	}
	return true, g.put(p, &node{kind: box.KindDir, mode: 0o755, at: time.Now()}, o.Parents)
}

func (g *Guest) put(p string, n *node, parents bool) error {
	p = path.Clean(p)
	if above := path.Dir(p); g.files[above] == nil {
		if !parents {
			return box.Errorf(box.NotFound, "make", "cannot make %q: there is no folder for it", p)
		}
		if err := g.put(above, &node{kind: box.KindDir, mode: 0o755, at: time.Now()}, true); err != nil {
			return err
		}
	}
	what := box.ChangeCreate
	if g.files[p] != nil {
		what = box.ChangeWrite
	}
	g.files[p] = n
	g.changed(p, what)
	return nil
}

// Move implements box.Guest.
func (g *Guest) Move(ctx context.Context, from, to string, replace bool) error {
	leave, err := g.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	n, err := g.node(from)
	if err != nil {
		return err
	}
	if g.files[path.Clean(to)] != nil && !replace {
		return box.Errorf(box.Conflict, "move", "cannot move to %q: it is there", to)
	}
	delete(g.files, path.Clean(from))
	return g.put(to, n, false)
}

// Remove implements box.Guest.
func (g *Guest) Remove(ctx context.Context, p string, all bool) error {
	leave, err := g.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := g.node(p); err != nil {
		return err
	}
	for name := range g.files {
		if strings.HasPrefix(name, path.Clean(p)+"/") {
			if !all {
				return box.Errorf(box.Conflict, "remove", "cannot remove %q: it is not empty", p)
			}
			delete(g.files, name)
		}
	}
	delete(g.files, path.Clean(p))
	g.changed(path.Clean(p), box.ChangeRemove)
	return nil
}

// Read implements box.Guest.
func (g *Guest) Read(ctx context.Context, p string, offset, length int64) (box.Entry, io.ReadCloser, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return box.Entry{}, nil, err
	}
	defer leave()
	n, err := g.node(p)
	if err != nil {
		return box.Entry{}, nil, err
	}
	if n.kind != box.KindFile {
		return box.Entry{}, nil, box.Errorf(box.Invalid, "read", "cannot read %q: it is no file", p)
	}
	data := n.data[min(offset, int64(len(n.data))):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return n.entry(p), io.NopCloser(bytes.NewReader(data)), nil
}

// Write implements box.Guest.
func (g *Guest) Write(ctx context.Context, p string, o box.WriteOptions, r io.Reader) (box.Entry, error) {
	if err := g.service.refused(); err != nil {
		return box.Entry{}, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return box.Entry{}, box.Errorf(box.Invalid, "write", "cannot write %q: %w", p, err)
	}
	leave, err := g.enter(ctx)
	if err != nil {
		return box.Entry{}, err
	}
	defer leave()
	if o.Exclusive && g.files[path.Clean(p)] != nil {
		return box.Entry{}, box.Errorf(box.Conflict, "write", "cannot write %q: it is there", p)
	}
	n := &node{kind: box.KindFile, data: data, mode: o.Mode, at: time.Now()}
	if n.mode == 0 {
		n.mode = 0o644
	}
	return n.entry(p), g.put(p, n, o.Parents)
}

// Watch implements box.Guest.
func (g *Guest) Watch(ctx context.Context, p string, recursive bool, fn func(box.Change) error) error {
	ctx, cancel, err := g.in(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	w := &watch{path.Clean(p), recursive, make(chan box.Change, 100)}
	g.mu.Lock()
	_, err = g.node(p)
	g.watches[w] = struct{}{}
	g.mu.Unlock()
	defer func() { g.mu.Lock(); delete(g.watches, w); g.mu.Unlock() }()
	if err != nil {
		return err
	}
	if err := fn(box.Change{}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case c := <-w.changes:
			if err := fn(c); err != nil {
				return err
			}
		}
	}
}

// Pack implements box.Guest.
func (g *Guest) Pack(ctx context.Context, p string, most int64, w io.Writer) error {
	all, _, err := g.List(ctx, p, 100, 1e6)
	if err != nil {
		return err
	}
	var total int64
	for _, e := range all {
		total += e.Size
	}
	if total > most {
		return box.Errorf(box.Exhausted, "pack", "cannot pack %q: it is more than %d bytes", p, most)
	}
	out := tar.NewWriter(w)
	for _, e := range all {
		h := &tar.Header{Name: strings.TrimPrefix(e.Path, path.Clean(p)+"/"), Size: e.Size, Mode: int64(e.Mode), Typeflag: tar.TypeReg}
		if e.Kind == box.KindDir {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		g.mu.Lock()
		n := g.files[e.Path]
		g.mu.Unlock()
		if n == nil || e.Kind == box.KindDir {
			continue
		}
		if _, err := out.Write(n.data); err != nil {
			return err
		}
	}
	return out.Close()
}

// Unpack implements box.Guest.
func (g *Guest) Unpack(ctx context.Context, p string, _ box.User, r io.Reader) (files, size int64, err error) {
	if err := g.service.refused(); err != nil {
		return 0, 0, err
	}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, size, nil
		}
		if err != nil {
			return files, size, box.Errorf(box.Invalid, "unpack", "cannot unpack: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		e, err := g.Write(ctx, path.Join(p, path.Clean("/"+h.Name)), box.WriteOptions{Parents: true}, in)
		if err != nil {
			return files, size, err
		}
		files, size = files+1, size+e.Size
	}
}
