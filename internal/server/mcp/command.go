package mcp

import (
	"context"
	"fmt"
	"path"
	"strings"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
)

type commandArgs struct {
	Command    command           `json:"command"`
	SandboxID  string            `json:"sandbox_id,omitempty" jsonschema:"from create_box; left out: a new box, gone afterwards"`
	Cwd        string            `json:"cwd,omitempty" jsonschema:"working folder, absolute or relative to that of the box"`
	Env        map[string]string `json:"env,omitempty" jsonschema:"environment, besides that of the box"`
	Timeout    *float64          `json:"timeout_sec,omitempty" jsonschema:"seconds until it is ended; 60 by default; 0 = no limit, with sandbox_id"`
	Background bool              `json:"background,omitempty" jsonschema:"return at once; needs sandbox_id"`
}

// kept is how much of the end of each stream stays in the box, in bytes.
const kept = 1 << 20

func (c call) runCommand(ctx context.Context, in commandArgs) (answer[runOut], error) {
	if in.SandboxID != "" {
		return c.commandIn(ctx, in)
	}
	if in.Background {
		return answer[runOut]{}, box.Errorf(box.Invalid, "run_command", "cannot run in the background without a box that lasts").
			WithHint("create_box gives a sandbox_id")
	}
	if in.Cwd != "" && in.Cwd != "." {
		// A box that is gone has one folder, which exists: nothing else can.
		return answer[runOut]{}, box.Errorf(box.Invalid, "run_command", "cannot start in %s: a new box has nothing but its working folder", in.Cwd).
			WithHint("give a sandbox_id, or begin the command with cd")
	}
	wanted := map[string]any{}
	if len(in.Env) > 0 {
		wanted["env"] = in.Env
		if err := remarshal(wanted, &wanted); err != nil {
			return answer[runOut]{}, err
		}
	}
	return c.once(ctx, box.ExecuteRequest{Argv: in.Command.args()}, wanted, in.Timeout)
}

// guest opens a box for calls of one right, and says where its files begin.
func (c call) guest(ctx context.Context, id string, need box.Scope) (box.ID, box.Guest, error) {
	b, err := boxID(id)
	if err != nil {
		return "", nil, err
	}
	g, err := c.cfg.Service.Guest(ctx, c.caller, b, need)
	return b, g, err
}

// place makes a path absolute: a relative one begins in the box's working folder.
func (c call) place(ctx context.Context, id box.ID, p string) (string, error) {
	switch {
	case strings.ContainsRune(p, 0):
		return "", box.Errorf(box.Invalid, "find file", "cannot use path %q: it has a NUL byte in it", p)
	case path.IsAbs(p):
		return p, nil
	}
	info, err := c.cfg.Service.Inspect(ctx, c.caller, id)
	if err != nil {
		return "", err
	}
	return path.Join(info.Policy.Workdir, p), nil
}

// commandIn runs a command in a box that lasts.
func (c call) commandIn(ctx context.Context, in commandArgs) (answer[runOut], error) {
	id, g, err := c.guest(ctx, in.SandboxID, box.ScopeExec)
	if err != nil {
		return answer[runOut]{}, err
	}
	usual := defaultTimeout
	if in.Background {
		usual = 0
	}
	limit, err := timeout(in.Timeout, usual)
	if err != nil {
		return answer[runOut]{}, err
	}
	spec := box.ProcessSpec{
		Command: box.Command{Argv: in.Command.args()},
		Timeout: limit, Grace: 2 * time.Second, Keep: kept,
	}
	for k, v := range in.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return answer[runOut]{}, box.Errorf(box.Invalid, "run_command", "cannot set environment variable %q", k)
		}
		spec.Env = append(spec.Env, k+"="+v)
	}
	if in.Cwd != "" {
		if spec.Dir, err = c.place(ctx, id, in.Cwd); err != nil {
			return answer[runOut]{}, err
		}
	}
	before := c.traffic(ctx, id)
	p, err := g.Start(ctx, spec)
	if err != nil {
		return answer[runOut]{}, err
	}
	r := c.newReport(string(id))
	r.out.SandboxID, r.out.PID, r.out.Timeout = string(id), p.PID, limit.Seconds()
	if in.Background {
		r.out.Cause = "running"
		uri := processURI(id, p.PID, "stdout")
		r.links = append(r.links, &sdk.ResourceLink{URI: uri, Name: "stdout", MIMEType: "text/plain", Description: "what it has written last, cleaned"})
		return r.answer(fmt.Sprintf("started process %d in the background", p.PID))
	}
	var out, errs excerpt
	end, err := follow(ctx, g, p.PID, &out, &errs)
	if err != nil {
		stop(ctx, g, p.PID)
		if ctx.Err() == nil && box.KindOf(err) == box.Unavailable {
			err = box.Errorf(box.Unavailable, "run_command", "cannot tell how process %d ended: %w", p.PID, err)
		}
		return answer[runOut]{}, err
	}
	o := &r.out
	o.Cause, o.TimedOut, o.Duration = string(end.Cause), end.Cause == box.Deadline, end.Ended.Sub(p.Started).Seconds()
	switch end.Cause {
	case box.Exited:
		o.ExitCode = &end.ExitCode
	case box.Signaled:
		o.Signal = &end.Signal
	case box.Deadline:
		o.Limits = append(o.Limits, "timeout_sec")
	case box.OutOfMemory:
		o.Limits = append(o.Limits, "memory")
	}
	o.Stdout = r.stream("stdout", &out, false, processURI(id, p.PID, "stdout"))
	o.Stderr = r.stream("stderr", &errs, false, processURI(id, p.PID, "stderr"))
	r.deniedSince(ctx, c, id, before)
	if !o.Truncated {
		_ = box.Tidy(ctx, g, box.ProcessRef{PID: p.PID}) // all of it is in the answer
	}
	return r.answer(ending(*o))
}

// follow waits for a process's end.
func follow(ctx context.Context, g box.Guest, pid int, out, errs *excerpt) (*box.End, error) {
	var end *box.End
	err := g.Follow(ctx, box.ProcessRef{PID: pid}, box.Positions{}, func(e box.ProcessEvent) error {
		switch e.Kind {
		case box.EventStdout:
			_, _ = out.Write(e.Data)
		case box.EventStderr:
			_, _ = errs.Write(e.Data)
		case box.EventEnd:
			end = e.End
		}
		return nil
	})
	if err == nil && end == nil {
		err = box.Errorf(box.Unavailable, "run_command", "cannot follow the process: its story has no end")
	}
	return end, err
}

// stop kills what nobody waits for any more.
func stop(ctx context.Context, g box.Guest, pid int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = g.Signal(ctx, box.ProcessRef{PID: pid}, int(syscall.SIGKILL), true) // gone already, or with its box
}
