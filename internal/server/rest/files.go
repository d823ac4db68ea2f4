package rest

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
)

// PathQuery names a file of a box.
type PathQuery struct {
	Path   string `query:"path" maxLength:"4096" doc:"Absolute; or"`
	Base64 string `query:"path_base64" maxLength:"8192" doc:"its bytes in base64 (either alphabet), if they are not UTF-8."`
}

func (p PathQuery) path() (string, error) { return pathOf(p.Path, p.Base64) }

// pathOf returns the path that was given in one of two forms.
func pathOf(text, b64 string) (string, error) {
	if (text == "") == (b64 == "") {
		return "", box.Errorf(box.Invalid, "read path", "cannot find a file: it takes either path or path_base64")
	}
	if b64 != "" {
		plain := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(b64), "=")
		raw, err := base64.RawStdEncoding.DecodeString(plain)
		if err != nil {
			return "", box.Errorf(box.Invalid, "read path", "cannot use path_base64: it is not base64")
		}
		text = string(raw)
	}
	switch {
	case !strings.HasPrefix(text, "/"):
		return "", box.Errorf(box.Invalid, "read path", "cannot use the path %q: it is not absolute", text)
	case strings.ContainsRune(text, 0):
		return "", box.Errorf(box.Invalid, "read path", "cannot use the path %q: no file has a NUL in its name", text)
	}
	return text, nil
}

// Entry is a file or folder.
type Entry struct {
	Path       string            `json:"path" doc:"U+FFFD stands for what is not UTF-8."`
	PathBase64 string            `json:"path_base64,omitempty" doc:"Its bytes, if they are not UTF-8."`
	Kind       box.FileKind      `json:"kind" enum:"file,dir,link,other"`
	Size       int64             `json:"size"`
	Mode       string            `json:"mode" doc:"Permission bits, octal."`
	UID        uint32            `json:"uid"`
	GID        uint32            `json:"gid"`
	Modified   time.Time         `json:"modified_at"`
	Link       string            `json:"link,omitempty" doc:"What a symbolic link says."`
	LinkBase64 string            `json:"link_base64,omitempty"`
	Attributes map[string][]byte `json:"attributes,omitempty" doc:"Its user.* extended attributes in base64, where the store has them."`
}

func entryOf(e box.Entry) Entry {
	out := Entry{Kind: e.Kind, Size: e.Size, Mode: fmt.Sprintf("%04o", e.Mode), UID: e.UID, GID: e.GID, Modified: e.Modified.UTC(), Attributes: e.Attributes}
	out.Path, out.PathBase64 = name(e.Path)
	out.Link, out.LinkBase64 = name(e.Link)
	return out
}

// name gives a name as text, and its bytes if text cannot hold them.
func name(s string) (text, b64 string) {
	if utf8.ValidString(s) {
		return s, ""
	}
	return strings.ToValidUTF8(s, "\uFFFD"), base64.StdEncoding.EncodeToString([]byte(s))
}

// modeOf reads permission bits as they are written: octal.
func modeOf(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, box.Errorf(box.Invalid, "read mode", "cannot use the mode %q: it is octal, from 1 to 777", s)
	}
	return uint32(n), nil
}

// files returns a box, and a context that bounds one call of it.
func (a *API) files(ctx context.Context, id string, s box.Scope) (context.Context, context.CancelFunc, box.Guest, error) {
	g, err := a.guest(ctx, id, s)
	if err != nil {
		return nil, nil, nil, err
	}
	bounded, cancel := a.call(ctx)
	return bounded, cancel, g, nil
}

type statRequest struct {
	BoxPath
	PathQuery
	Follow bool `query:"follow" doc:"Of a symbolic link, tell where it leads."`
}

func (a *API) stat(ctx context.Context, in *statRequest) (Entry, error) {
	path, err := in.path()
	if err != nil {
		return Entry{}, err
	}
	ctx, cancel, g, err := a.files(ctx, in.ID, box.ScopeRead)
	if err != nil {
		return Entry{}, err
	}
	defer cancel()
	e, err := g.Stat(ctx, path, in.Follow)
	if err != nil {
		return Entry{}, err
	}
	return entryOf(e), nil
}

// maxListed bounds how many entries of a folder can be paged through.
const maxListed = 10000

type fileList struct {
	BoxPath
	PathQuery
	PageQuery
	Depth int `query:"depth" minimum:"1" maximum:"64" doc:"How many levels below the folder; 1 if absent: its own entries."`
}

// EntryPage is a page of files.
type EntryPage struct {
	Entries []Entry `json:"entries"`
	Next    string  `json:"next" doc:"The cursor of the next page; empty at the end. A list ends at 10000 entries, or 4 MiB of paths: see cut."`
	Cut     bool    `json:"cut" doc:"There is more than can be paged through: list a folder below."`
}

func (a *API) fileList(ctx context.Context, in *fileList) (EntryPage, error) {
	path, err := in.path()
	if err != nil {
		return EntryPage{}, err
	}
	from, limit, err := in.window()
	if err != nil {
		return EntryPage{}, err
	}
	ctx, cancel, g, err := a.files(ctx, in.ID, box.ScopeRead)
	if err != nil {
		return EntryPage{}, err
	}
	defer cancel()
	most := min(from+limit, maxListed)
	all, cut, err := g.List(ctx, path, max(in.Depth, 1), most)
	if err != nil {
		return EntryPage{}, err
	}
	out := EntryPage{Entries: []Entry{}}
	for _, e := range all[min(from, len(all)):] {
		out.Entries = append(out.Entries, entryOf(e))
	}
	switch {
	case cut && (most == maxListed || len(all) < most): // or their names are too long
		out.Cut = true
	case cut:
		out.Next = strconv.Itoa(most)
	}
	return out, nil
}

// PathBody names a file in a body.
type PathBody struct {
	Path   string `json:"path,omitempty" maxLength:"4096"`
	Base64 string `json:"path_base64,omitempty" maxLength:"8192"`
}

type makeDirRequest struct {
	BoxPath
	Body struct {
		PathBody
		Mode    string `json:"mode,omitempty" pattern:"^0?[0-7]{1,3}$" doc:"Octal; 0755 if absent."`
		Parents bool   `json:"parents,omitempty" doc:"Make missing folders above; one that is there is no error."`
		User    string `json:"user,omitempty" enum:"user,root" doc:"Its owner."`
	}
}

// Made says whether something was made.
type Made struct {
	Made bool `json:"made" doc:"False if it was there."`
}

func (a *API) makeDir(ctx context.Context, in *makeDirRequest) (Made, error) {
	path, err := pathOf(in.Body.Path, in.Body.Base64)
	if err != nil {
		return Made{}, err
	}
	mode, err := modeOf(in.Body.Mode)
	if err != nil {
		return Made{}, err
	}
	ctx, cancel, g, err := a.files(ctx, in.ID, box.ScopeWrite)
	if err != nil {
		return Made{}, err
	}
	defer cancel()
	made, err := g.MakeDir(ctx, path, box.MakeDirOptions{Mode: mode, Parents: in.Body.Parents, User: box.User(in.Body.User)})
	return Made{made}, err
}

type moveRequest struct {
	BoxPath
	Body struct {
		From       string `json:"from,omitempty" maxLength:"4096"`
		FromBase64 string `json:"from_base64,omitempty" maxLength:"8192"`
		To         string `json:"to,omitempty" maxLength:"4096"`
		ToBase64   string `json:"to_base64,omitempty" maxLength:"8192"`
		Replace    bool   `json:"replace,omitempty" doc:"What is there is replaced; else that is a conflict."`
	}
}

func (a *API) move(ctx context.Context, in *moveRequest) error {
	from, err := pathOf(in.Body.From, in.Body.FromBase64)
	if err != nil {
		return err
	}
	to, err := pathOf(in.Body.To, in.Body.ToBase64)
	if err != nil {
		return err
	}
	ctx, cancel, g, err := a.files(ctx, in.ID, box.ScopeWrite)
	if err != nil {
		return err
	}
	defer cancel()
	return g.Move(ctx, from, to, in.Body.Replace)
}

type removeRequest struct {
	BoxPath
	PathQuery
	Recursive bool `query:"recursive" doc:"A folder with all that is in it."`
}

func (a *API) remove(ctx context.Context, in *removeRequest) error {
	path, err := in.path()
	if err != nil {
		return err
	}
	ctx, cancel, g, err := a.files(ctx, in.ID, box.ScopeWrite)
	if err != nil {
		return err
	}
	defer cancel()
	return g.Remove(ctx, path, in.Recursive)
}
