package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
)

// place names a file. Bytes that are no text go as base64.
func place(path string) url.Values {
	if utf8.ValidString(path) {
		return url.Values{"path": {path}}
	}
	return url.Values{"path_base64": {base64.URLEncoding.EncodeToString([]byte(path))}}
}

// named is place for a body.
func named(in map[string]any, key, path string) map[string]any {
	if utf8.ValidString(path) {
		in[key] = path
	} else {
		in[key+"_base64"] = base64.StdEncoding.EncodeToString([]byte(path))
	}
	return in
}

type entryJSON struct {
	Path       string            `json:"path"`
	PathBytes  []byte            `json:"path_base64"`
	Kind       box.FileKind      `json:"kind"`
	Size       int64             `json:"size"`
	Mode       string            `json:"mode"`
	UID        uint32            `json:"uid"`
	GID        uint32            `json:"gid"`
	Modified   time.Time         `json:"modified_at"`
	Link       string            `json:"link"`
	LinkBytes  []byte            `json:"link_base64"`
	Attributes map[string][]byte `json:"attributes"`
}

func (e entryJSON) entry() (box.Entry, error) {
	mode, err := strconv.ParseUint(e.Mode, 8, 32)
	if err != nil {
		return box.Entry{}, wrong("%q is no mode", e.Mode)
	}
	out := box.Entry{Path: e.Path, Kind: e.Kind, Size: e.Size, Mode: uint32(mode), UID: e.UID, GID: e.GID, Modified: e.Modified, Link: e.Link, Attributes: e.Attributes}
	if e.PathBytes != nil {
		out.Path = string(e.PathBytes)
	}
	if e.LinkBytes != nil {
		out.Link = string(e.LinkBytes)
	}
	return out, nil
}

// Stat implements box.Files.
func (g *Guest) Stat(ctx context.Context, path string, follow bool) (box.Entry, error) {
	v := place(path)
	v.Set("follow", strconv.FormatBool(follow))
	var e entryJSON
	if err := g.c.do(ctx, call{method: http.MethodGet, path: g.path("/files/stat"), query: v}, &e); err != nil {
		return box.Entry{}, err
	}
	return e.entry()
}

// List implements box.Files.
func (g *Guest) List(ctx context.Context, path string, depth, most int) (out []box.Entry, cut bool, err error) {
	v := place(path)
	v.Set("depth", strconv.Itoa(depth))
	v.Set("limit", strconv.Itoa(min(max(most, 1), 1000)))
	err = pages(ctx, g.c, g.path("/files/list"), v, func(page struct {
		Entries []entryJSON `json:"entries"`
		Cut     bool        `json:"cut"`
		next
	}) error {
		cut = page.Cut
		for _, j := range page.Entries {
			if len(out) == most {
				cut = true
				return errEnough
			}
			e, err := j.entry()
			if err != nil {
				return err
			}
			out = append(out, e)
		}
		if len(out) == most && page.Next != "" {
			cut = true
			return errEnough
		}
		return nil
	})
	return out, cut, err
}

func octal(mode uint32) string {
	if mode == 0 {
		return ""
	}
	return fmt.Sprintf("%o", mode)
}

// MakeDir implements box.Files.
func (g *Guest) MakeDir(ctx context.Context, path string, o box.MakeDirOptions) (bool, error) {
	in := named(map[string]any{"parents": o.Parents}, "path", path)
	if o.Mode != 0 {
		in["mode"] = octal(o.Mode)
	}
	if o.User != "" {
		in["user"] = o.User
	}
	var made struct {
		Made bool `json:"made"`
	}
	err := g.c.do(ctx, call{method: http.MethodPost, path: g.path("/files/mkdir"), in: in}, &made)
	return made.Made, err
}

// Move implements box.Files.
func (g *Guest) Move(ctx context.Context, from, to string, replace bool) error {
	in := named(named(map[string]any{"replace": replace}, "from", from), "to", to)
	return g.c.do(ctx, call{method: http.MethodPost, path: g.path("/files/move"), in: in}, nil)
}

// Remove implements box.Files.
func (g *Guest) Remove(ctx context.Context, path string, all bool) error {
	v := place(path)
	v.Set("recursive", strconv.FormatBool(all))
	return g.c.do(ctx, call{method: http.MethodDelete, path: g.path("/files"), query: v}, nil)
}

// Read implements box.Files. Of the Entry, Path and Size are known.
func (g *Guest) Read(ctx context.Context, path string, offset, length int64) (box.Entry, io.ReadCloser, error) {
	e, err := g.Stat(ctx, path, true)
	if err != nil {
		return box.Entry{}, nil, err
	}
	if length == 0 || offset > 0 && offset >= e.Size {
		return e, io.NopCloser(strings.NewReader("")), nil
	}
	q := call{method: http.MethodGet, path: g.path("/files"), query: place(path), header: map[string]string{"Accept": "*/*"}}
	if offset > 0 || length > 0 && e.Size > 0 {
		q.header["Range"] = fmt.Sprintf("bytes=%d-", offset)
		if length > 0 {
			q.header["Range"] += strconv.FormatInt(offset+length-1, 10)
		}
	}
	res, err := g.c.send(ctx, q)
	if err != nil {
		return box.Entry{}, nil, err
	}
	if q.header["Range"] != "" && res.StatusCode != http.StatusPartialContent {
		res.Body.Close()
		return box.Entry{}, nil, wrong("a part of a file was asked for, and the answer is %s", res.Status)
	}
	return e, &whole{res.Body}, nil
}

// whole is the body of an answer, whose early end is an error of its own.
type whole struct{ io.ReadCloser }

func (w *whole) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = box.Errorf(box.Unavailable, "read file", "cannot read on: the answer broke off: %w", err).
			WithHint("the file may have become shorter, or the daemon may have ended; read it again")
	}
	return n, err
}

// Write implements box.Files. Attributes are not sent.
func (g *Guest) Write(ctx context.Context, path string, o box.WriteOptions, r io.Reader) (box.Entry, error) {
	v := place(path)
	if o.Mode != 0 {
		v.Set("mode", octal(o.Mode))
	}
	if o.User != "" {
		v.Set("user", string(o.User))
	}
	v.Set("parents", strconv.FormatBool(o.Parents))
	v.Set("exclusive", strconv.FormatBool(o.Exclusive))
	var e entryJSON
	if err := g.c.do(ctx, call{method: http.MethodPut, path: g.path("/files"), query: v, body: io.NopCloser(r)}, &e); err != nil {
		return box.Entry{}, err
	}
	return e.entry()
}

// Watch implements box.Files. A watch that breaks off is an error: what
// happened meanwhile is lost.
func (g *Guest) Watch(ctx context.Context, path string, recursive bool, fn func(box.Change) error) error {
	v := place(path)
	v.Set("recursive", strconv.FormatBool(recursive))
	ask := func(string) call { return call{method: http.MethodGet, path: g.path("/files/watch"), query: v} }
	return g.c.listen(ctx, false, ask, func(e event) error {
		switch e.name {
		case "ready":
			return fn(box.Change{})
		case "change":
			var c struct {
				Path  string         `json:"path"`
				Bytes []byte         `json:"path_base64"`
				What  box.ChangeKind `json:"what"`
			}
			if err := understand(e.data, &c); err != nil {
				return err
			}
			if c.Bytes != nil {
				c.Path = string(c.Bytes)
			}
			return fn(box.Change{Path: c.Path, What: c.What})
		}
		return nil
	})
}

// Pack implements box.Files.
func (g *Guest) Pack(ctx context.Context, path string, most int64, w io.Writer) error {
	v := place(path)
	v.Set("max_bytes", strconv.FormatInt(most, 10))
	res, err := g.c.send(ctx, call{method: http.MethodGet, path: g.path("/files/archive"), query: v, header: map[string]string{"Accept": "*/*"}})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	to := &target{w: w}
	if _, err := io.Copy(to, res.Body); err != nil && to.failed == nil {
		return box.Errorf(box.Unavailable, "pack", "cannot read the archive to its end: %w", err)
	}
	return to.failed
}

// target is a writer whose errors are the caller's own, and not the daemon's.
type target struct {
	w      io.Writer
	failed error
}

func (t *target) Write(p []byte) (n int, err error) {
	n, t.failed = t.w.Write(p)
	return n, t.failed
}

// Unpack implements box.Files.
func (g *Guest) Unpack(ctx context.Context, path string, user box.User, r io.Reader) (files, bytes int64, err error) {
	v := place(path)
	if user != "" {
		v.Set("user", string(user))
	}
	var n struct {
		Files int64 `json:"files"`
		Bytes int64 `json:"bytes"`
	}
	err = g.c.do(ctx, call{method: http.MethodPut, path: g.path("/files/archive"), query: v, body: io.NopCloser(r)}, &n)
	return n.Files, n.Bytes, err
}

// Dial implements box.Guest, in so far as it says that it does not.
func (g *Guest) Dial(context.Context, uint16) (net.Conn, error) {
	return nil, box.Errorf(box.Unsupported, "dial", "cannot dial a port through this client").WithHint("GET /v1/boxes/{id}/ports/{port} with Upgrade: tcp is the way")
}

// Metrics implements box.Guest.
func (g *Guest) Metrics(ctx context.Context) (box.Metrics, error) {
	var m struct {
		Processes   int     `json:"processes"`
		MemoryUsed  int64   `json:"memory_used_bytes"`
		MemoryTotal int64   `json:"memory_total_bytes"`
		DiskUsed    int64   `json:"disk_used_bytes"`
		DiskTotal   int64   `json:"disk_total_bytes"`
		FilesUsed   int64   `json:"files_used"`
		FilesTotal  int64   `json:"files_total"`
		Agent       int64   `json:"agent_resident_bytes"`
		CPU         float64 `json:"cpu_seconds"`
		Uptime      float64 `json:"uptime_seconds"`
	}
	err := g.c.do(ctx, call{method: http.MethodGet, path: g.path("/metrics")}, &m)
	return box.Metrics{Processes: m.Processes, MemoryUsed: m.MemoryUsed, MemoryTotal: m.MemoryTotal, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
		FilesUsed: m.FilesUsed, FilesTotal: m.FilesTotal, AgentResident: m.Agent, CPU: seconds(m.CPU), Uptime: seconds(m.Uptime)}, err
}
