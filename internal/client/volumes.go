package client

import (
	"context"
	"net/http"

	"github.com/sunaba-dev/sunaba/box"
)

func (c *Client) volume(ctx context.Context, q call) (box.VolumeInfo, error) {
	var v VolumeDocument
	if err := c.do(ctx, q, &v); err != nil {
		return box.VolumeInfo{}, err
	}
	return v.info()
}

// CreateVolume implements box.VolumeService.
func (c *Client) CreateVolume(ctx context.Context, _ box.Caller, name string, bytes int64) (box.VolumeInfo, error) {
	return c.volume(ctx, call{method: http.MethodPost, path: "/volumes", in: map[string]any{"name": name, "bytes": bytes}})
}

// Volumes implements box.VolumeService.
func (c *Client) Volumes(ctx context.Context, _ box.Caller) ([]box.VolumeInfo, error) {
	var all struct {
		Volumes []VolumeDocument `json:"volumes"`
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: "/volumes"}, &all); err != nil {
		return nil, err
	}
	var out []box.VolumeInfo
	for _, v := range all.Volumes {
		i, err := v.info()
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

// InspectVolume implements box.VolumeService.
func (c *Client) InspectVolume(ctx context.Context, _ box.Caller, name string) (box.VolumeInfo, error) {
	return c.volume(ctx, call{method: http.MethodGet, path: "/volumes/" + segment(name)})
}

// DeleteVolume implements box.VolumeService.
func (c *Client) DeleteVolume(ctx context.Context, _ box.Caller, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/volumes/" + segment(name)}, nil)
}
