package rest

import (
	"io"
	"net/http"

	"github.com/sunaba-dev/sunaba/box"
)

// maxArchive is how large an archive is for which nothing else was said, in bytes.
const maxArchive = 1 << 30

type packRequest struct {
	BoxPath
	PathQuery
	Most int64 `query:"max_bytes" minimum:"1" doc:"More is an error; 1 GiB if absent. An error after the first byte cuts the connection."`
}

func (a *API) pack(w http.ResponseWriter, r *http.Request, in *packRequest) error {
	p, err := in.path()
	if err != nil {
		return err
	}
	g, err := a.guest(r.Context(), in.ID, box.ScopeRead)
	if err != nil {
		return err
	}
	most := in.Most
	if most == 0 {
		most = maxArchive
	}
	out := &lateWriter{w: w, body: a.patient(w, r)}
	err = g.Pack(r.Context(), p, most, out)
	switch {
	case err != nil && out.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case !out.begun:
		out.begin()
	}
	return nil
}

// lateWriter writes the head of a tar stream's answer before its first byte.
type lateWriter struct {
	w     http.ResponseWriter
	body  io.Writer
	begun bool
}

func (l *lateWriter) begin() {
	l.begun = true
	l.w.Header().Set("Content-Type", "application/x-tar")
	l.w.Header().Set("Content-Disposition", "attachment")
	l.w.WriteHeader(http.StatusOK)
}

func (l *lateWriter) Write(p []byte) (int, error) {
	if !l.begun {
		l.begin()
	}
	return l.body.Write(p)
}

type unpackRequest struct {
	BoxPath
	PathQuery
	User string `query:"user" enum:"user,root" doc:"Owner of what is made."`
}

// Unpacked says what an archive had in it.
type Unpacked struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

func (a *API) unpack(w http.ResponseWriter, r *http.Request, in *unpackRequest) error {
	p, err := in.path()
	if err != nil {
		return err
	}
	g, err := a.guest(r.Context(), in.ID, box.ScopeWrite)
	if err != nil {
		return err
	}
	body := a.arriving(w, r)
	defer body.done()
	files, bytes, err := g.Unpack(r.Context(), p, box.User(in.User), body)
	if body.err != nil {
		return bodyError(body.err)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, Unpacked{files, bytes})
}

type watchRequest struct {
	BoxPath
	PathQuery
	Recursive bool `query:"recursive" doc:"Also what is further below."`
}

// Change is one change below a watched path.
type Change struct {
	Path       string         `json:"path" doc:"Relative to what is watched."`
	PathBase64 string         `json:"path_base64,omitempty"`
	What       box.ChangeKind `json:"what" enum:"create,write,remove,rename,chmod,lost"`
}

// watch tells of changes. What happens while nobody watches is not told later.
func (a *API) watch(w http.ResponseWriter, r *http.Request, in *watchRequest) error {
	p, err := in.path()
	if err != nil {
		return err
	}
	g, err := a.guest(r.Context(), in.ID, box.ScopeRead)
	if err != nil {
		return err
	}
	e := a.open(w, r)
	return e.close(g.Watch(r.Context(), p, in.Recursive, func(c box.Change) error {
		if c.What == "" {
			return e.send("", "ready", struct{}{})
		}
		out := Change{What: c.What}
		out.Path, out.PathBase64 = name(c.Path)
		return e.send("", "change", out)
	}))
}
