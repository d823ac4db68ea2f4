package engine

import (
	"context"
	"io"
	"path"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// where makes a path of a caller's absolute: others begin at the box's working
// folder. It is resolved in the box.
func (u *used) where(p string) (string, error) {
	if p == "" || strings.ContainsRune(p, 0) {
		return "", box.Errorf(box.Invalid, "find file", "cannot use path %q: it is empty or has a zero byte in it", p)
	}
	if !path.IsAbs(p) {
		p = u.l.kept.Workdir + "/" + p
	}
	return p, nil
}

// at is a call about one path.
func at[T any](ctx context.Context, u *used, p string, call func(context.Context, box.Guest, string) (T, error)) (T, error) {
	p, err := u.where(p)
	if err != nil {
		var none T
		return none, err
	}
	return get(ctx, u, func(ctx context.Context, g box.Guest) (T, error) { return call(ctx, g, p) })
}

// Stat implements box.Files.
func (u *used) Stat(ctx context.Context, p string, follow bool) (box.Entry, error) {
	return at(ctx, u, p, func(ctx context.Context, g box.Guest, p string) (box.Entry, error) { return g.Stat(ctx, p, follow) })
}

// List implements box.Files.
func (u *used) List(ctx context.Context, p string, depth, most int) (entries []box.Entry, cut bool, err error) {
	entries, err = at(ctx, u, p, func(ctx context.Context, g box.Guest, p string) (all []box.Entry, err error) {
		all, cut, err = g.List(ctx, p, depth, most)
		return all, err
	})
	return entries, cut, err
}

// MakeDir implements box.Files.
func (u *used) MakeDir(ctx context.Context, p string, o box.MakeDirOptions) (bool, error) {
	return at(ctx, u, p, func(ctx context.Context, g box.Guest, p string) (bool, error) { return g.MakeDir(ctx, p, o) })
}

// Move implements box.Files.
func (u *used) Move(ctx context.Context, from, to string, replace bool) error {
	to, err := u.where(to)
	if err != nil {
		return err
	}
	_, err = at(ctx, u, from, func(ctx context.Context, g box.Guest, from string) (struct{}, error) {
		return struct{}{}, g.Move(ctx, from, to, replace)
	})
	return err
}

// Remove implements box.Files.
func (u *used) Remove(ctx context.Context, p string, all bool) error {
	_, err := at(ctx, u, p, func(ctx context.Context, g box.Guest, p string) (struct{}, error) {
		return struct{}{}, g.Remove(ctx, p, all)
	})
	return err
}

// Read implements box.Files.
func (u *used) Read(ctx context.Context, p string, offset, length int64) (box.Entry, io.ReadCloser, error) {
	p, err := u.where(p)
	if err != nil {
		return box.Entry{}, nil, err
	}
	ctx, leave, err := u.enter(ctx)
	if err != nil {
		return box.Entry{}, nil, err
	}
	e, r, err := u.l.guest.Read(ctx, p, offset, length)
	if err != nil {
		return e, nil, leave(err)
	}
	return e, &usedReader{r, leave}, nil
}

// Write implements box.Files.
func (u *used) Write(ctx context.Context, p string, o box.WriteOptions, r io.Reader) (box.Entry, error) {
	return at(ctx, u, p, func(ctx context.Context, g box.Guest, p string) (box.Entry, error) { return g.Write(ctx, p, o, r) })
}

// Watch implements box.Files.
func (u *used) Watch(ctx context.Context, p string, recursive bool, fn func(box.Change) error) error {
	_, err := at(ctx, u, p, func(ctx context.Context, g box.Guest, p string) (struct{}, error) {
		return struct{}{}, g.Watch(ctx, p, recursive, fn)
	})
	return err
}

// Pack implements box.Files.
func (u *used) Pack(ctx context.Context, p string, most int64, w io.Writer) error {
	_, err := at(ctx, u, p, func(ctx context.Context, g box.Guest, p string) (struct{}, error) {
		return struct{}{}, g.Pack(ctx, p, most, w)
	})
	return err
}

// Unpack implements box.Files.
func (u *used) Unpack(ctx context.Context, p string, user box.User, r io.Reader) (files, bytes int64, err error) {
	files, err = at(ctx, u, p, func(ctx context.Context, g box.Guest, p string) (n int64, err error) {
		n, bytes, err = g.Unpack(ctx, p, user, r)
		return n, err
	})
	return files, bytes, err
}

// OpenContext implements box.Contexts.
func (u *used) OpenContext(ctx context.Context, c box.ContextSpec) (box.CodeContext, error) {
	if c.User == "" {
		c.User = u.l.kept.User
	}
	if c.Dir == "" {
		c.Dir = u.l.kept.Workdir
	}
	c.Env = u.environment(c.User, c.Env)
	return get(ctx, u, func(ctx context.Context, g box.Guest) (box.CodeContext, error) { return g.OpenContext(ctx, c) })
}

// Contexts implements box.Contexts.
func (u *used) Contexts(ctx context.Context) ([]box.CodeContext, error) {
	return get(ctx, u, func(ctx context.Context, g box.Guest) ([]box.CodeContext, error) { return g.Contexts(ctx) })
}

// RunCell implements box.Contexts.
func (u *used) RunCell(ctx context.Context, id string, cell box.Cell, fn func(box.CellEvent) error) error {
	return do(ctx, u, func(ctx context.Context, g box.Guest) error { return g.RunCell(ctx, id, cell, fn) })
}

// Interrupt implements box.Contexts.
func (u *used) Interrupt(ctx context.Context, id string) error {
	return do(ctx, u, func(ctx context.Context, g box.Guest) error { return g.Interrupt(ctx, id) })
}

// RestartContext implements box.Contexts.
func (u *used) RestartContext(ctx context.Context, id string) (box.CodeContext, error) {
	return get(ctx, u, func(ctx context.Context, g box.Guest) (box.CodeContext, error) { return g.RestartContext(ctx, id) })
}

// CloseContext implements box.Contexts.
func (u *used) CloseContext(ctx context.Context, id string) error {
	return do(ctx, u, func(ctx context.Context, g box.Guest) error { return g.CloseContext(ctx, id) })
}
