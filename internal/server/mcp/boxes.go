package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
)

// createArgs has the keys of sunaba.yaml under their names, but for those that
// choose what stands between the code and the host (runtime, trust), what the
// code reaches (network), those that name a place of the host, and those of the
// warm pool: a model does not decide these about its own code.
type createArgs struct {
	Image      string            `json:"image,omitempty" jsonschema:"root file system: host or base"`
	User       string            `json:"user,omitempty" jsonschema:"who programs are in the box: user (the default) or root; neither has power outside"`
	Env        map[string]string `json:"env,omitempty" jsonschema:"environment of every program"`
	Limits     *limits           `json:"resource_limits,omitempty" jsonschema:"bounds of the box; what is left out has the service's default"`
	Filesystem *filesystem       `json:"filesystem,omitempty" jsonschema:"files of the box"`

	TTL    float64 `json:"ttl_sec,omitempty" jsonschema:"seconds until the box is destroyed; 0 or left out means the service's default"`
	Idle   float64 `json:"idle_sec,omitempty" jsonschema:"destroy the box, or pause it (on_idle), when it was not used for so many seconds; 0 or left out means never"`
	OnIdle string  `json:"on_idle,omitempty" jsonschema:"what becomes of the box after idle_sec: destroy (the default) or pause; a paused box goes on at the next call"`
	Strict bool    `json:"strict,omitempty" jsonschema:"refuse a box of which this host cannot enforce everything"`
}

type limits struct {
	CPU       string  `json:"cpu,omitempty" jsonschema:"cores, as in 1.0 or 500m"`
	Memory    string  `json:"memory,omitempty" jsonschema:"size, as in 512m or 2g"`
	Timeout   float64 `json:"timeout_sec,omitempty" jsonschema:"seconds for one program, unless its call says otherwise"`
	Idle      float64 `json:"idle_sec,omitempty" jsonschema:"seconds without a byte in or out"`
	Grace     float64 `json:"grace_sec,omitempty" jsonschema:"seconds between SIGTERM and SIGKILL at a deadline"`
	Processes int64   `json:"max_processes,omitempty" jsonschema:"processes and threads"`
	OpenFiles int64   `json:"max_open_files,omitempty" jsonschema:"open files of one process"`
	Disk      string  `json:"disk,omitempty" jsonschema:"size of all writable places together, as in 1g"`
	Files     int64   `json:"max_files,omitempty" jsonschema:"files and folders in all writable places together"`
	Output    string  `json:"max_output,omitempty" jsonschema:"size of stdout and stderr together, as in 1m"`
	OnLimit   string  `json:"on_limit,omitempty" jsonschema:"record or kill"`
}

type filesystem struct {
	Workdir string `json:"writable_dir,omitempty" jsonschema:"where programs start and may write; /workspace by default"`
}

type createOut struct {
	SandboxID string   `json:"sandbox_id" jsonschema:"pass it to the other tools"`
	ExpiresAt string   `json:"expires_at,omitempty" jsonschema:"when the box is destroyed, RFC 3339; absent = never"`
	Workdir   string   `json:"writable_dir"`
	Tier      string   `json:"tier" jsonschema:"how its walls are built"`
	Image     string   `json:"image"`
	Weak      []string `json:"weak" jsonschema:"what this host cannot enforce"`
}

func (c call) createBox(ctx context.Context, in createArgs) (answer[createOut], error) {
	req := box.CreateRequest{Strict: in.Strict, OnIdle: box.IdleAction(in.OnIdle)}
	var err error
	if req.TTL, err = seconds("ttl_sec", in.TTL); err != nil {
		return answer[createOut]{}, err
	}
	if req.Idle, err = seconds("idle_sec", in.Idle); err != nil {
		return answer[createOut]{}, err
	}
	in.TTL, in.Idle, in.OnIdle, in.Strict = 0, 0, "", false
	var wanted map[string]any
	if err := remarshal(in, &wanted); err != nil {
		return answer[createOut]{}, err
	}
	if req.Sandbox, err = c.withBase(wanted); err != nil {
		return answer[createOut]{}, err
	}
	info, err := c.cfg.Service.Create(ctx, c.caller, req)
	if err != nil {
		return answer[createOut]{}, err
	}
	out := createOut{
		SandboxID: string(info.ID), Workdir: info.Policy.Workdir,
		Tier: string(info.Tier), Image: info.Image, Weak: orEmpty(info.Weak),
	}
	say := fmt.Sprintf("created box %s; programs start in %s", out.SandboxID, out.Workdir)
	if !info.Ends.IsZero() {
		out.ExpiresAt = info.Ends.UTC().Format(time.RFC3339)
		say += "; it is destroyed at " + out.ExpiresAt
	}
	if len(out.Weak) > 0 {
		say += "\nnot firm on this host: " + strings.Join(out.Weak, "; ")
	}
	return answer[createOut]{out, []sdk.Content{text(say)}}, nil
}

type boxArgs struct {
	SandboxID string `json:"sandbox_id" jsonschema:"from create_box"`
}

type destroyOut struct {
	SandboxID string `json:"sandbox_id"`
	Destroyed bool   `json:"destroyed"`
}

func (c call) destroyBox(ctx context.Context, in boxArgs) (answer[destroyOut], error) {
	id, err := boxID(in.SandboxID)
	if err == nil {
		err = c.cfg.Service.Destroy(ctx, c.caller, id)
	}
	if err != nil {
		return answer[destroyOut]{}, err
	}
	c.cfg.Outputs.Forget(c.caller.Tenant, id)
	return answer[destroyOut]{destroyOut{in.SandboxID, true}, []sdk.Content{text("box " + in.SandboxID + " is destroyed")}}, nil
}

// boxID refuses what no box can have as its name.
func boxID(s string) (box.ID, error) {
	if id := box.ID(s); id.Valid() {
		return id, nil
	}
	return "", box.Errorf(box.NotFound, "find box", "cannot find box %q", s).
		WithHint("sandbox_id is what create_box returned; leave it out for a new box")
}

// maxSeconds is the longest time that can be asked for.
const maxSeconds = 366 * 24 * 3600

// seconds turns an argument into a time.
func seconds(name string, v float64) (time.Duration, error) {
	if v < 0 || v > maxSeconds {
		return 0, box.Errorf(box.Invalid, "read arguments", "cannot use %s %g: it is 0 to %d", name, v, maxSeconds)
	}
	return time.Duration(v * float64(time.Second)), nil
}

func remarshal(in, out any) error {
	b, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return box.Errorf(box.Fault, "read arguments", "cannot rewrite arguments: %w", err)
	}
	return nil
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
