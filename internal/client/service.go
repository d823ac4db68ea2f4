package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func (c *Client) box(ctx context.Context, q call) (box.Info, error) {
	var b BoxDocument
	if err := c.do(ctx, q, &b); err != nil {
		return box.Info{}, err
	}
	return b.info()
}

// Create implements box.Service.
func (c *Client) Create(ctx context.Context, _ box.Caller, r box.CreateRequest) (box.Info, error) {
	in := map[string]any{"ttl_sec": r.TTL.Seconds(), "idle_sec": r.Idle.Seconds(), "strict": r.Strict}
	if r.OnIdle != "" {
		in["on_idle"] = r.OnIdle
	}
	if len(r.Sandbox) > 0 {
		in["sandbox"] = r.Sandbox
	}
	if r.Snapshot != "" {
		in["snapshot"] = r.Snapshot
	}
	if r.Template != "" {
		in["template"] = r.Template
	}
	if len(r.Metadata) > 0 {
		in["metadata"] = r.Metadata
	}
	q := call{method: http.MethodPost, path: "/boxes", in: in}
	if r.Key != "" {
		q.header = map[string]string{"Idempotency-Key": r.Key}
	}
	return c.box(ctx, q)
}

// Inspect implements box.Service.
func (c *Client) Inspect(ctx context.Context, _ box.Caller, id box.ID) (box.Info, error) {
	return c.box(ctx, call{method: http.MethodGet, path: boxPath(id)})
}

// List implements box.Service.
func (c *Client) List(ctx context.Context, _ box.Caller, r box.ListRequest) ([]box.Info, string, error) {
	v := url.Values{}
	if r.Destroyed {
		v.Set("destroyed", "true")
	}
	for name, value := range r.Metadata {
		v.Add("metadata", name+"="+value)
	}
	if r.Cursor != "" {
		v.Set("cursor", r.Cursor)
	}
	if r.Limit > 0 {
		v.Set("limit", strconv.Itoa(r.Limit))
	}
	var page struct {
		Boxes []BoxDocument `json:"boxes"`
		Next  string        `json:"next"`
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: "/boxes", query: v}, &page); err != nil {
		return nil, "", err
	}
	var out []box.Info
	for _, b := range page.Boxes {
		i, err := b.info()
		if err != nil {
			return nil, "", err
		}
		out = append(out, i)
	}
	return out, page.Next, nil
}

// Prolong implements box.Service.
func (c *Client) Prolong(ctx context.Context, _ box.Caller, id box.ID, ttl time.Duration) (box.Info, error) {
	return c.box(ctx, call{method: http.MethodPost, path: boxPath(id, "/prolong"), in: map[string]any{"ttl_sec": ttl.Seconds()}})
}

// Pause implements box.Service.
func (c *Client) Pause(ctx context.Context, _ box.Caller, id box.ID) (box.Info, error) {
	return c.box(ctx, call{method: http.MethodPost, path: boxPath(id, "/pause")})
}

// Resume implements box.Service.
func (c *Client) Resume(ctx context.Context, _ box.Caller, id box.ID) (box.Info, error) {
	return c.box(ctx, call{method: http.MethodPost, path: boxPath(id, "/resume")})
}

// Destroy implements box.Service.
func (c *Client) Destroy(ctx context.Context, _ box.Caller, id box.ID) error {
	return c.do(ctx, call{method: http.MethodDelete, path: boxPath(id)}, nil)
}

// Guest implements box.Service. Nothing is asked yet: a box that is not there
// is told of by the first call.
func (c *Client) Guest(_ context.Context, _ box.Caller, id box.ID, _ box.Scope) (box.Guest, error) {
	return &Guest{c, id}, nil
}

// maxStdin bounds what Execute sends as standard input, in bytes: it is part of
// a document.
const maxStdin = 4 << 20

// Execute implements box.Service. Standard input is read to its end first.
func (c *Client) Execute(ctx context.Context, _ box.Caller, r box.ExecuteRequest) (*box.Report, error) {
	in := map[string]any{"collect": r.Collect, "strict": r.Strict}
	if r.Argv != nil {
		in["command"] = r.Argv
	} else {
		in["language"], in["code"] = r.Language, r.Code
	}
	if len(r.Args) > 0 {
		in["args"] = r.Args
	}
	if len(r.Sandbox) > 0 {
		in["sandbox"] = r.Sandbox
	}
	if len(r.Input) > 0 {
		in["input"] = r.Input
	}
	var files []map[string]any
	for _, f := range r.Files {
		files = append(files, map[string]any{"path": f.Path, "content_base64": f.Data, "executable": f.Exec})
	}
	if files != nil {
		in["files"] = files
	}
	if r.Stdin != nil {
		b, err := io.ReadAll(io.LimitReader(r.Stdin, maxStdin+1))
		switch {
		case err != nil:
			return nil, box.Errorf(box.Invalid, "execute", "cannot read standard input: %w", err)
		case len(b) > maxStdin:
			return nil, box.Errorf(box.Invalid, "execute", "cannot send standard input: it is longer than %d bytes", maxStdin).
				WithHint("make a box and use exec, which streams it")
		}
		if s, ok := asText(b); ok {
			in["stdin"] = s
		} else {
			return nil, box.Errorf(box.Invalid, "execute", "cannot send standard input: it is not UTF-8").
				WithHint("make a box and use exec, which sends bytes")
		}
	}
	var raw json.RawMessage
	if err := c.do(ctx, call{method: http.MethodPost, path: "/execute", in: in}, &raw); err != nil {
		return nil, err
	}
	rep := new(box.Report)
	return rep, understand(raw, rep)
}

// Whoami implements box.Service.
func (c *Client) Whoami(ctx context.Context, _ box.Caller) (box.Allowance, error) {
	type share struct {
		Used int64 `json:"used"`
		Most int64 `json:"most"`
	}
	var me struct {
		Tenant    string      `json:"tenant"`
		Principal string      `json:"principal"`
		Scopes    []box.Scope `json:"scopes"`
		Boxes     share       `json:"boxes"`
		CPU       share       `json:"milli_cpu"`
		Memory    share       `json:"memory_bytes"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/me"}, &me)
	return box.Allowance{Tenant: me.Tenant, Principal: me.Principal, Scopes: me.Scopes,
		Boxes: box.Share(me.Boxes), MilliCPU: box.Share(me.CPU), Memory: box.Share(me.Memory)}, err
}
