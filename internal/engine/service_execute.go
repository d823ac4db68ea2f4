package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// Execute implements box.Service. Who has no room waits in line for it: such a
// box is soon gone.
func (s *Service) Execute(ctx context.Context, c box.Caller, req box.ExecuteRequest) (*box.Report, error) {
	if err := c.May(box.ScopeExec); err != nil {
		return nil, err
	}
	w, err := s.wish(c, box.CreateRequest{Sandbox: req.Sandbox, Strict: req.Strict})
	if err != nil {
		return nil, err
	}
	argv, seeds, err := programOf(req, w.Policy.Spec.Workdir)
	if err != nil {
		return nil, err
	}
	l := w.Policy.Spec.Limits
	pass, err := s.cfg.Gate.Enter(ctx, c.Tenant, tenant.Amounts{Boxes: 1, MilliCPU: l.MilliCPU, Memory: l.Memory}, true)
	if err != nil {
		return nil, err
	}
	defer pass.Release()
	w.Policy.Spec.Seeds = seeds
	id := s.cfg.Engine.newID()
	if err := policy.CheckVolumes(w.Policy.Spec); err != nil {
		return nil, err
	}
	opened, done, err := s.attach(ctx, c.Tenant, id, w.Policy.Spec.Volumes)
	if err != nil {
		return nil, err
	}
	w.Policy.Spec.Volumes = opened
	defer func() {
		done()
		s.letGo(context.WithoutCancel(ctx), c.Tenant, id, opened)
	}()
	rep, err := s.cfg.Engine.Run(ctx, Request{
		ID:      id,
		Policy:  w.Policy,
		User:    w.User,
		Command: box.Command{Argv: argv, Env: Environment(w.User, w.Env...), User: w.User},
		Stdin:   req.Stdin,
		Capture: true,
		Collect: req.Collect,
		Phase: func(what string) {
			if what == PhaseRunning {
				pass.Started()
			}
		},
	})
	s.cfg.Log.InfoContext(ctx, "run ended", "box", rep.ID, "tenant", c.Tenant, "principal", c.Principal, "tier", rep.Tier, "cause", rep.Cause)
	return rep, err
}

// programOf is what to start, and which files it needs.
func programOf(req box.ExecuteRequest, workdir string) ([]string, []box.Seed, error) {
	var argv []string
	var seeds []box.Seed
	add := func(name string, mode fs.FileMode, data []byte) {
		seeds = append(seeds, box.Seed{
			Path: path.Join(workdir, name), Mode: mode, Size: int64(len(data)),
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		})
	}
	switch {
	case len(req.Argv) > 0 && (req.Code != "" || req.Language != ""):
		return nil, nil, box.Errorf(box.Invalid, "run", "cannot run both code and a command: give language and code, or command")
	case len(req.Argv) > 0:
		argv = append(argv, req.Argv...)
	case req.Code == "":
		return nil, nil, box.Errorf(box.Invalid, "run", "cannot run: no code and no command")
	default:
		run, file, err := interpret(req.Language, req.Code)
		if err != nil {
			return nil, nil, err
		}
		argv = append(run, path.Join(workdir, file))
		add(file, 0o755, []byte(req.Code))
	}
	argv = append(argv, req.Args...)
	for _, a := range argv {
		if strings.ContainsRune(a, 0) {
			return nil, nil, box.Errorf(box.Invalid, "run", "cannot run: an argument has a zero byte in it")
		}
	}
	if len(req.Input) > 0 {
		if !json.Valid(req.Input) {
			return nil, nil, box.Errorf(box.Invalid, "run", "cannot place input: it is not JSON")
		}
		add("input.json", 0o644, req.Input)
	}
	for _, f := range req.Files {
		if f.Path == "" || path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == ".." || f.Path == "." || strings.HasPrefix(f.Path, "../") || strings.ContainsRune(f.Path, 0) {
			return nil, nil, box.Errorf(box.Invalid, "run", "cannot place file %q: its name must be relative to the working folder and stay in it", f.Path)
		}
		mode := fs.FileMode(0o644)
		if f.Exec {
			mode = 0o755
		}
		add(f.Path, mode, f.Data)
	}
	return argv, seeds, Distinct(seeds)
}

// Distinct refuses two files of one name, and a file where another one needs a
// folder: which of them the program would see is nothing to guess about.
func Distinct(seeds []box.Seed) error {
	for i, s := range seeds {
		for j, o := range seeds {
			switch {
			case i < j && s.Path == o.Path:
				return box.Errorf(box.Invalid, "run", "cannot place %s: two files are to have that name", s.Path).
					WithHint("give one of them another name, as with --copy FILE:NAME")
			case strings.HasPrefix(o.Path, s.Path+"/"):
				return box.Errorf(box.Invalid, "run", "cannot place %s: %s is to be a file", o.Path, s.Path)
			}
		}
	}
	return nil
}
