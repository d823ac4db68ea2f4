package mcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// Bounds of one read, in bytes, and of one list, in entries.
const (
	usualRead = 64 << 10
	maxRead   = 1 << 20
	maxList   = 1000
	maxDepth  = 16
)

type readArgs struct {
	SandboxID string `json:"sandbox_id" jsonschema:"from create_box"`
	Path      string `json:"path" jsonschema:"absolute, or relative to the box's working folder"`
	Offset    int64  `json:"offset,omitempty" jsonschema:"first byte wanted"`
	Limit     int64  `json:"limit,omitempty" jsonschema:"bytes wanted, at most 1048576; 65536 by default"`
}

type readOut struct {
	Path    string `json:"path"`
	Size    int64  `json:"size" jsonschema:"of the whole file, in bytes"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes" jsonschema:"in this answer"`
	More    bool   `json:"more" jsonschema:"the file goes on behind this"`
	Next    int64  `json:"next_offset" jsonschema:"where it goes on"`
	Content string `json:"content" jsonschema:"as text, with what is invisible shown as escapes; empty if it is not text"`
	// Base64 is there whenever Content is not the file byte for byte.
	Base64   string `json:"content_base64,omitempty" jsonschema:"the bytes, if content does not have them exactly"`
	Resource string `json:"resource,omitempty" jsonschema:"URI of the whole file, for resources/read"`
}

func (c call) readFile(ctx context.Context, in readArgs) (answer[readOut], error) {
	if in.Offset < 0 || in.Limit < 0 || in.Limit > maxRead {
		return answer[readOut]{}, box.Errorf(box.Invalid, "read_file", "cannot read %d bytes from %d on: limit is 1 to %d, offset 0 or more", in.Limit, in.Offset, maxRead)
	}
	if in.Limit == 0 {
		in.Limit = usualRead
	}
	id, g, err := c.guest(ctx, in.SandboxID, box.ScopeRead)
	if err != nil {
		return answer[readOut]{}, err
	}
	p, err := c.place(ctx, id, in.Path)
	if err != nil {
		return answer[readOut]{}, err
	}
	entry, r, err := g.Read(ctx, p, in.Offset, in.Limit)
	if err != nil {
		return answer[readOut]{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, in.Limit))
	if err != nil {
		return answer[readOut]{}, err
	}
	if whole := stream.WholeRunes(data); utf8.Valid(whole) && len(whole) > 0 {
		data = whole
	}
	o := readOut{Path: clean(p), Size: entry.Size, Offset: in.Offset, Bytes: int64(len(data)), Next: in.Offset + int64(len(data))}
	o.More = o.Next < o.Size
	if o.More {
		o.Resource = fileURI(id, p)
	}
	kind := http.DetectContentType(data)
	word := nonce()
	say := fmt.Sprintf("%s: bytes %d to %d of %d", o.Path, o.Offset, o.Next, o.Size)
	content := []sdk.Content{}
	switch cleaned := stream.Clean(data); {
	case (kind == "image/png" || kind == "image/jpeg") && in.Offset == 0 && !o.More:
		o.Base64 = base64.StdEncoding.EncodeToString(data)
		content = append(content, &sdk.ImageContent{Data: data, MIMEType: kind})
	case !utf8.Valid(data):
		o.Base64 = base64.StdEncoding.EncodeToString(data)
		say += "; it is not text: content_base64 has the bytes"
	default:
		o.Content = cleaned
		if cleaned != string(data) {
			o.Base64 = base64.StdEncoding.EncodeToString(data)
			say += "; some of its characters are shown as escapes"
		}
		content = append(content, text(fence(word, fmt.Sprintf("box=%q file=%q", id, o.Path), cleaned)))
	}
	content = append([]sdk.Content{text(say)}, content...)
	if o.More {
		content = append(content, &sdk.ResourceLink{URI: o.Resource, Name: o.Path, Size: &o.Size, Description: "the whole file"})
	}
	return answer[readOut]{o, content}, nil
}

type writeArgs struct {
	SandboxID string  `json:"sandbox_id" jsonschema:"from create_box"`
	Path      string  `json:"path" jsonschema:"absolute, or relative to the box's working folder"`
	Content   *string `json:"content,omitempty" jsonschema:"the file, if it is text"`
	Base64    *string `json:"content_base64,omitempty" jsonschema:"the file, if it is not"`
}

type writeOut struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

func (c call) writeFile(ctx context.Context, in writeArgs) (answer[writeOut], error) {
	var data string
	switch {
	case (in.Content == nil) == (in.Base64 == nil):
		return answer[writeOut]{}, box.Errorf(box.Invalid, "write_file", "cannot write the file: give content or content_base64, one of them")
	case in.Content != nil:
		data = *in.Content
	default:
		b, err := base64.StdEncoding.DecodeString(*in.Base64)
		if err != nil {
			return answer[writeOut]{}, box.Errorf(box.Invalid, "write_file", "cannot read content_base64: %w", err)
		}
		data = string(b)
	}
	id, g, err := c.guest(ctx, in.SandboxID, box.ScopeWrite)
	if err != nil {
		return answer[writeOut]{}, err
	}
	p, err := c.place(ctx, id, in.Path)
	if err != nil {
		return answer[writeOut]{}, err
	}
	entry, err := g.Write(ctx, p, box.WriteOptions{Parents: true}, strings.NewReader(data))
	if err != nil {
		return answer[writeOut]{}, err
	}
	o := writeOut{clean(p), entry.Size}
	return answer[writeOut]{o, []sdk.Content{text(fmt.Sprintf("wrote %s, %d bytes", o.Path, o.Size))}}, nil
}

type listArgs struct {
	SandboxID string `json:"sandbox_id" jsonschema:"from create_box"`
	Path      string `json:"path" jsonschema:"absolute, or relative to the box's working folder, which is ."`
	Depth     int    `json:"depth,omitempty" jsonschema:"levels, at most 16; 1 by default: the folder's own entries"`
}

type listOut struct {
	Path    string  `json:"path"`
	Entries []entry `json:"entries"`
	More    bool    `json:"more" jsonschema:"there are more than these"`
}

type entry struct {
	Path     string `json:"path" jsonschema:"absolute, with what is invisible shown as escapes"`
	Base64   string `json:"path_base64,omitempty" jsonschema:"its bytes, if path does not have them exactly"`
	Kind     string `json:"kind" jsonschema:"file, dir, link or other"`
	Size     int64  `json:"size"`
	Mode     string `json:"mode" jsonschema:"permission bits, octal"`
	Modified string `json:"modified"`
	Link     string `json:"link,omitempty" jsonschema:"what a symbolic link says"`
}

func (c call) listFiles(ctx context.Context, in listArgs) (answer[listOut], error) {
	if in.Depth < 0 || in.Depth > maxDepth {
		return answer[listOut]{}, box.Errorf(box.Invalid, "list_files", "cannot list %d levels: depth is 1 to %d", in.Depth, maxDepth)
	}
	id, g, err := c.guest(ctx, in.SandboxID, box.ScopeRead)
	if err != nil {
		return answer[listOut]{}, err
	}
	p, err := c.place(ctx, id, in.Path)
	if err != nil {
		return answer[listOut]{}, err
	}
	entries, cut, err := g.List(ctx, p, max(in.Depth, 1), maxList)
	if err != nil {
		return answer[listOut]{}, err
	}
	o := listOut{Path: clean(p), Entries: []entry{}, More: cut}
	var lines strings.Builder
	for _, e := range entries {
		n := entry{
			Path: oneLine(e.Path), Kind: string(e.Kind), Size: e.Size, Link: oneLine(e.Link),
			Mode: fmt.Sprintf("%04o", e.Mode), Modified: e.Modified.UTC().Format(time.RFC3339),
		}
		if n.Path != e.Path {
			n.Base64 = base64.StdEncoding.EncodeToString([]byte(e.Path))
		}
		o.Entries = append(o.Entries, n)
		fmt.Fprintf(&lines, "%s %s %10d  %s", n.Mode, n.Kind, n.Size, n.Path)
		if n.Link != "" {
			fmt.Fprintf(&lines, " -> %s", n.Link)
		}
		lines.WriteByte('\n')
	}
	say := fmt.Sprintf("%s: %d entries", o.Path, len(entries))
	if cut {
		say += ", and more that are not shown"
	}
	return answer[listOut]{o, []sdk.Content{text(say), text(fence(nonce(), fmt.Sprintf("box=%q folder=%q", id, o.Path), lines.String()))}}, nil
}

// oneLine shows a name that may hold anything, on one line.
func oneLine(name string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(clean(name))
}
