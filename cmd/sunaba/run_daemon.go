package main

import (
	"context"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/terminal"
)

// runAtDaemon is `sunaba run --daemon`: one call of the daemon's execute, which
// answers when the program has ended. What needs more than that is refused.
func runAtDaemon(ctx context.Context, f *runFlags, prog program, seeds []box.Seed) (*box.Report, error) {
	for _, o := range []struct {
		name string
		set  bool
	}{{"--tty", f.tty}, {"--out", f.out != ""}, {"--state", f.state != ""}, {"--resolver", len(f.resolvers) > 0}, {"--allow-weaker-tier", f.allowWeaker}} {
		if o.set {
			hint := "`sunaba box` has terminals and files"
			if o.name == "--resolver" {
				hint = "`sunaba serve --resolver ADDRESS` is for all boxes of the daemon"
			}
			return nil, box.Errorf(box.Invalid, "run", "cannot use %s with --daemon", o.name).WithHint("%s", hint)
		}
	}
	if f.tier != "" {
		f.cfg.Runtime = box.TierName(f.tier)
	}
	sandbox, err := sandboxOf(f.cfg)
	if err != nil {
		return nil, err
	}
	req := box.ExecuteRequest{Sandbox: sandbox, Argv: prog.argv, Collect: f.format == "json", Strict: f.strict}
	for _, s := range seeds {
		file, err := fileOf(f.cfg.Workdir, s)
		if err != nil {
			return nil, invalid(err)
		}
		req.Files = append(req.Files, file)
	}
	if !prog.eatsStdin && !terminal.IsTerminal(os.Stdin) {
		req.Stdin = os.Stdin
	}
	c, err := serverFlags{}.client()
	if err != nil {
		return nil, err
	}
	progress := terminal.NewProgress(os.Stderr)
	progress.Phase("waiting for the daemon")
	rep, err := c.Execute(ctx, box.Caller{}, req)
	progress.Stop()
	if ctx.Err() != nil {
		return nil, box.Errorf(box.Unavailable, "run", "cannot wait for the daemon: canceled")
	}
	if err != nil || f.format == "json" {
		return rep, err
	}
	for _, o := range []struct {
		to       *os.File
		text, b6 *string
	}{{os.Stdout, rep.Stdout, rep.StdoutBase64}, {os.Stderr, rep.Stderr, rep.StderrBase64}} {
		if err := show(o.to, o.text, o.b6); err != nil {
			f.unread = err
			break
		}
	}
	return rep, nil
}

// fileOf reads what a seed holds.
func fileOf(workdir string, s box.Seed) (box.File, error) {
	name, err := filepath.Rel(workdir, s.Path)
	if err != nil {
		return box.File{}, err
	}
	r, err := s.Open()
	if err != nil {
		return box.File{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, s.Size))
	return box.File{Path: name, Data: data, Exec: s.Mode&0o111 != 0}, err
}

// show writes a stream of a report: cleaned for a terminal, else its bytes.
func show(to *os.File, text, b64 *string) error {
	var raw []byte
	switch {
	case text != nil:
		raw = []byte(*text)
	case b64 != nil:
		var err error
		if raw, err = base64.StdEncoding.DecodeString(*b64); err != nil {
			return err
		}
	}
	if terminal.IsTerminal(to) {
		raw = []byte(stream.Clean(raw))
	}
	_, err := to.Write(raw)
	return err
}
