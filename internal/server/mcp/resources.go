package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// Where resources are. What a process in a box has written last is kept in the box
// itself, for as long as that lives, but for what newer processes push out.
const (
	outputsURI = "sunaba://outputs/"
	boxesURI   = "sunaba://boxes/"
)

// maxResource bounds one resource, in bytes.
const maxResource = 8 << 20

// patience is how long a read waits for what a process that lives has written.
const patience = 2 * time.Second

func processURI(id box.ID, pid int, stream string) string {
	return fmt.Sprintf("%s%s/processes/%d/%s", boxesURI, id, pid, stream)
}

func fileURI(id box.ID, path string) string {
	return boxesURI + string(id) + "/files?path=" + url.QueryEscape(path)
}

func (s *Server) addResources() {
	s.addResource("outputs", outputsURI+"{name}", "text/plain", "output that was too long for an answer, cleaned; kept for an hour at most", call.readOutput)
	s.addResource("process output", boxesURI+"{sandbox_id}/processes/{pid}/{stream}", "text/plain", "the last of what a process in a box has written (stdout or stderr), cleaned", call.readProcess)
	s.addResource("file", boxesURI+"{sandbox_id}/files{?path}", "application/octet-stream", "a file of a box, byte for byte", call.readWhole)
}

func (s *Server) addResource(name, template, mime, description string, read func(call, context.Context, *url.URL) (*sdk.ResourceContents, error)) {
	t := &sdk.ResourceTemplate{Name: name, URITemplate: template, MIMEType: mime, Description: description}
	s.sdk.AddResourceTemplate(t, func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		r, ok := ctx.Value(contextKey{}).(*request)
		if !ok {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "cannot serve this: nobody authenticated the request"}
		}
		u, err := url.Parse(req.Params.URI)
		if err != nil {
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		}
		contents, err := read(call{s, r.caller}, ctx, u)
		switch kind := box.KindOf(err); {
		case err == nil:
			contents.URI = req.Params.URI
			// It is its tenant's: nobody between may give it to another one.
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}, Cacheable: sdk.Cacheable{CacheScope: "private"}}, nil
		case kind == box.NotFound || kind == box.Invalid:
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		default:
			said := s.failure(err).Content[0].(*sdk.TextContent).Text
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: said}
		}
	})
}

func absent(what string) error {
	return box.Errorf(box.NotFound, "read resource", "cannot find %s", what)
}

func (c call) readOutput(_ context.Context, u *url.URL) (*sdk.ResourceContents, error) {
	kept, ok := c.cfg.Outputs.Get(c.caller.Tenant, strings.TrimPrefix(u.Path, "/"))
	if !ok {
		return nil, absent("this output: it was never kept, or is no more")
	}
	if err := c.caller.May(box.ScopeExec); err != nil {
		return nil, err
	}
	return &sdk.ResourceContents{Text: kept, MIMEType: "text/plain"}, nil
}

func (c call) readProcess(ctx context.Context, u *url.URL) (*sdk.ResourceContents, error) {
	part := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	if len(part) != 4 || part[3] != "stdout" && part[3] != "stderr" {
		return nil, absent("this output")
	}
	pid, err := strconv.Atoi(part[2])
	if err != nil || pid <= 0 {
		return nil, absent("this process")
	}
	_, g, err := c.guest(ctx, part[0], box.ScopeExec)
	if err != nil {
		return nil, err
	}
	var kept bytes.Buffer
	from := box.Positions{Stdout: -1, Stderr: -1}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = g.Follow(ctx, box.ProcessRef{PID: pid}, from, func(e box.ProcessEvent) error {
		switch {
		case e.Kind == box.EventBeat:
			return io.EOF // it lives, and has nothing more to say for now
		case string(e.Kind) != part[3]:
			return nil
		case kept.Len()+len(e.Data) > maxResource:
			return io.EOF
		}
		kept.Write(e.Data)
		return nil
	})
	if err != nil && err != io.EOF && ctx.Err() == nil {
		return nil, err
	}
	return &sdk.ResourceContents{Text: stream.Clean(kept.Bytes()), MIMEType: "text/plain"}, nil
}

func (c call) readWhole(ctx context.Context, u *url.URL) (*sdk.ResourceContents, error) {
	part := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	path := u.Query().Get("path")
	if len(part) != 2 || path == "" {
		return nil, absent("this file")
	}
	id, g, err := c.guest(ctx, part[0], box.ScopeRead)
	if err != nil {
		return nil, err
	}
	if path, err = c.place(ctx, id, path); err != nil {
		return nil, err
	}
	entry, r, err := g.Read(ctx, path, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxResource+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxResource:
		return nil, box.Errorf(box.Exhausted, "read resource", "cannot read the file as one resource: it has %d bytes, at most %d", entry.Size, maxResource).
			WithHint("read_file reads a part")
	case utf8.Valid(data):
		return &sdk.ResourceContents{Text: string(data), MIMEType: "text/plain; charset=utf-8"}, nil
	}
	return &sdk.ResourceContents{Blob: data, MIMEType: "application/octet-stream"}, nil
}
