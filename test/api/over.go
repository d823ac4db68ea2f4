package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// Over is a Box over a guest.
func Over(g box.Guest) Box { return over{g} }

type over struct{ g box.Guest }

func (o over) Shell(ctx context.Context, script string) (string, error) {
	p, err := o.g.Start(ctx, box.ProcessSpec{Command: box.Command{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}}})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	var end *box.End
	err = o.g.Follow(ctx, box.ProcessRef{PID: p.PID}, box.Positions{}, func(e box.ProcessEvent) error {
		out.Write(e.Data)
		end = e.End
		return nil
	})
	if err != nil {
		// Whoever gave up wants it ended.
		_ = o.g.Signal(context.WithoutCancel(ctx), box.ProcessRef{PID: p.PID}, 9, true)
		return out.String(), err
	}
	if end.Cause != box.Exited || end.ExitCode != 0 {
		return out.String(), fmt.Errorf("the script ended as %s (code %d, signal %d): %s", end.Cause, end.ExitCode, end.Signal, out.String())
	}
	return out.String(), nil
}

func (o over) Read(ctx context.Context, path string) ([]byte, error) {
	_, r, err := o.g.Read(ctx, path, 0, 1<<20)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func (o over) Write(ctx context.Context, path string, data []byte) error {
	_, err := o.g.Write(ctx, path, box.WriteOptions{}, bytes.NewReader(data))
	return err
}

func (o over) Stat(ctx context.Context, path string) (string, error) {
	e, err := o.g.Stat(ctx, path, false)
	return line(e), err
}

func line(e box.Entry) string { return fmt.Sprintf("%s %q -> %q\n", e.Kind, e.Path, e.Link) }

func (o over) List(ctx context.Context, path string) (string, error) {
	entries, _, err := o.g.List(ctx, path, 10, 1000)
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(line(e))
	}
	return b.String(), err
}

func (o over) MakeDir(ctx context.Context, path string) error {
	_, err := o.g.MakeDir(ctx, path, box.MakeDirOptions{Parents: true})
	return err
}

func (o over) Move(ctx context.Context, from, to string) error { return o.g.Move(ctx, from, to, true) }

func (o over) Remove(ctx context.Context, path string) error { return o.g.Remove(ctx, path, true) }

func (o over) Pack(ctx context.Context, path string) ([]byte, error) {
	var b bytes.Buffer
	err := o.g.Pack(ctx, path, 8<<20, &b)
	return b.Bytes(), err
}

func (o over) Unpack(ctx context.Context, path string, tar []byte) error {
	_, _, err := o.g.Unpack(ctx, path, "", bytes.NewReader(tar))
	return err
}
