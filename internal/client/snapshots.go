package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sunaba-dev/sunaba/box"
)

func (c *Client) snapshot(ctx context.Context, q call) (box.SnapshotInfo, error) {
	var s SnapshotDocument
	if err := c.do(ctx, q, &s); err != nil {
		return box.SnapshotInfo{}, err
	}
	return s.info()
}

// Snapshot implements box.SnapshotService.
func (c *Client) Snapshot(ctx context.Context, _ box.Caller, id box.ID, r box.SnapshotRequest) (box.SnapshotInfo, error) {
	in := map[string]any{}
	if r.Name != "" {
		in["name"] = r.Name
	}
	if r.Kind != "" {
		in["kind"] = r.Kind
	}
	return c.snapshot(ctx, call{method: http.MethodPost, path: boxPath(id, "/snapshots"), in: in})
}

// Snapshots implements box.SnapshotService.
func (c *Client) Snapshots(ctx context.Context, _ box.Caller, r box.ListSnapshots) ([]box.SnapshotInfo, string, error) {
	v := url.Values{}
	if r.Box != "" {
		v.Set("box", string(r.Box))
	}
	if r.Cursor != "" {
		v.Set("cursor", r.Cursor)
	}
	if r.Limit > 0 {
		v.Set("limit", strconv.Itoa(r.Limit))
	}
	var page struct {
		Snapshots []SnapshotDocument `json:"snapshots"`
		Next      string             `json:"next"`
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: "/snapshots", query: v}, &page); err != nil {
		return nil, "", err
	}
	var out []box.SnapshotInfo
	for _, s := range page.Snapshots {
		i, err := s.info()
		if err != nil {
			return nil, "", err
		}
		out = append(out, i)
	}
	return out, page.Next, nil
}

// InspectSnapshot implements box.SnapshotService.
func (c *Client) InspectSnapshot(ctx context.Context, _ box.Caller, ref string) (box.SnapshotInfo, error) {
	return c.snapshot(ctx, call{method: http.MethodGet, path: "/snapshots/" + segment(ref)})
}

// DeleteSnapshot implements box.SnapshotService.
func (c *Client) DeleteSnapshot(ctx context.Context, _ box.Caller, ref string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/snapshots/" + segment(ref)}, nil)
}

// Fork implements box.SnapshotService.
func (c *Client) Fork(ctx context.Context, _ box.Caller, id box.ID, r box.ForkRequest) ([]box.Forked, error) {
	in := map[string]any{"count": r.Count, "ttl_sec": r.TTL.Seconds()}
	if r.Metadata != nil {
		in["metadata"] = r.Metadata
	}
	var all struct {
		Forks []struct {
			Box   *BoxDocument `json:"box"`
			Error *problem     `json:"error"`
		} `json:"forks"`
	}
	if err := c.do(ctx, call{method: http.MethodPost, path: boxPath(id, "/fork"), in: in}, &all); err != nil {
		return nil, err
	}
	var out []box.Forked
	for _, f := range all.Forks {
		var copied box.Forked
		switch {
		case f.Error != nil:
			copied.Err = f.Error.error()
		case f.Box == nil:
			return nil, wrong("a copy is neither a box nor an error")
		default:
			var err error
			if copied.Info, err = f.Box.info(); err != nil {
				return nil, err
			}
		}
		out = append(out, copied)
	}
	return out, nil
}
