package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// TestTheCommandLine runs the cases by `sunaba box`, on both tiers. A command is a
// process of its own, so what is done many times is done less often.
func TestTheCommandLine(t *testing.T) {
	harness.NothingLeft(t)
	d := harness.StartServer(t, harness.Users()[0])
	onREST(t, d, func(t *testing.T, id box.ID, b Box) Place {
		return Place{Box: typed{b, t, d, string(id)}, Dir: "/workspace", Walls: true, Rarely: 25}
	})
}

// typed is a box at the end of `sunaba box`, as far as that has a command for
// what is asked; for the rest it is what it was.
type typed struct {
	Box
	t  *testing.T
	d  *harness.Server
	id string
}

// run runs a command of `sunaba box`. What failed is an error of its kind.
func (b typed) run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	if args[0] == "cp" { // whose errors then have their kinds
		args = append([]string{"cp", "-o", "json"}, args[1:]...)
	}
	cmd := harness.Command(ctx, b.t, b.d.User, append([]string{"box"}, args...)...)
	cmd.Env = append(cmd.Env, "SUNABA_SERVER="+b.d.URL, "SUNABA_API_KEY="+b.d.Key)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &head{&out, 1 << 20}, &errs
	err := cmd.Run()
	if out.Len() == 1<<20 {
		return out.Bytes(), nil // it had enough when its output was closed
	}
	if err == nil {
		return out.Bytes(), nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var told struct {
		Error *box.ErrorJSON `json:"error"`
	}
	for rest := out.Bytes(); len(rest) > 0; rest = rest[1:] { // behind what had come before it failed
		if rest[0] == '{' && json.Unmarshal(rest, &told) == nil && told.Error != nil {
			return nil, &box.Error{Kind: told.Error.Kind, Message: told.Error.Message}
		}
	}
	return out.Bytes(), errors.Join(err, errors.New(errs.String()))
}

// head takes so many bytes and then no more.
type head struct {
	to   *bytes.Buffer
	most int
}

func (h *head) Write(p []byte) (int, error) {
	n, _ := h.to.Write(p[:min(len(p), h.most-h.to.Len())])
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func (b typed) Shell(ctx context.Context, script string) (string, error) {
	if strings.HasPrefix(script, "while ") {
		return b.Box.Shell(ctx, script) // it ends when its caller does, which a killed command cannot see to
	}
	out, err := b.run(ctx, nil, "exec", b.id, "/bin/sh", "-c", script)
	return string(out), err
}

// cannot reports whether a path cannot be typed, or means something else there.
func cannot(path string) bool { return strings.ContainsRune(path, 0) || !strings.HasPrefix(path, "/") }

// Read reads the beginning of a file: one may be without end.
func (b typed) Read(ctx context.Context, path string) ([]byte, error) {
	if cannot(path) {
		return b.Box.Read(ctx, path)
	}
	return b.run(ctx, nil, "cp", b.id+":"+path, "-")
}

func (b typed) Write(ctx context.Context, path string, data []byte) error {
	if cannot(path) {
		return b.Box.Write(ctx, path, data)
	}
	_, err := b.run(ctx, data, "cp", "-", b.id+":"+path)
	return err
}

// Pack copies a folder out and returns what came to the host's disk.
func (b typed) Pack(ctx context.Context, path string) ([]byte, error) {
	dir := filepath.Join(harness.Dir(b.t, b.d.User), "out")
	if _, err := b.run(ctx, nil, "cp", "-r", b.id+":"+path, dir); err != nil {
		return nil, err
	}
	tool := func(name string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		return cmd.CombinedOutput()
	}
	if special, err := tool("find", dir, "!", "-type", "f", "!", "-type", "d"); err != nil || len(special) > 0 {
		b.t.Errorf("came out, and is neither a file nor a folder: %v %s", err, special)
	}
	return tool("tar", "-C", dir, "-cf", "-", ".")
}
