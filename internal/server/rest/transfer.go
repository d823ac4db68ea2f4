package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

type readRequest struct {
	BoxPath
	PathQuery
	Range string `header:"Range" maxLength:"128" doc:"One range of bytes (RFC 9110, section 14.2); others are answered with the whole file."`
}

func (a *API) read(w http.ResponseWriter, r *http.Request, in *readRequest) error {
	p, err := in.path()
	if err != nil {
		return err
	}
	g, err := a.guest(r.Context(), in.ID, box.ScopeRead)
	if err != nil {
		return err
	}
	return a.sendFile(w, r, g, p)
}

// sendFile answers with a file, or a range of it. A file that turns out shorter
// than it was, or fails in the middle, cuts the connection: the client sees that
// it has not all.
func (a *API) sendFile(w http.ResponseWriter, r *http.Request, g box.Guest, name string) error {
	offset, length := int64(0), int64(-1)
	asked := r.Header.Get("Range")
	if r.Header.Get("If-Range") != "" {
		asked = "" // there is no validator that it could name (RFC 9110, section 13.1.5)
	}
	if asked != "" {
		ctx, cancel := a.call(r.Context())
		e, err := g.Stat(ctx, name, true)
		cancel()
		if err != nil {
			return err
		}
		var ok bool
		if offset, length, ok, err = rangeOf(asked, e.Size); err != nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", e.Size))
			return err
		} else if !ok {
			offset, length = 0, -1
		}
	}
	e, body, err := g.Read(r.Context(), name, offset, length)
	if err != nil {
		return err
	}
	defer body.Close()
	// A file that has become shorter since its size was asked for is an answer, as
	// long as none was begun.
	want := length
	if want < 0 {
		want = e.Size
	}
	content := bufio.NewReaderSize(body, firstPiece)
	switch _, err := content.Peek(int(max(1, min(want, firstPiece)))); {
	case err == io.EOF && want > 0:
		return box.Errorf(box.Conflict, "read file", "cannot read the file: it became shorter while it was read").
			WithHint("read it again")
	case err != nil && err != io.EOF:
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(path.Base(name)))
	h.Set("Accept-Ranges", "bytes")
	status := http.StatusOK
	switch {
	case length >= 0:
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, e.Size))
	case e.Size > 0:
		length = e.Size // files of /proc say that they are empty, and are not
	}
	if length >= 0 {
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	w.WriteHeader(status)
	out := a.patient(w, r)
	if length < 0 {
		_, err = io.Copy(out, content)
	} else {
		_, err = io.CopyN(out, content, length)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// firstPiece is how much of a file is read before its answer begins, in bytes.
const firstPiece = 32 << 10

// rangeOf reads a Range header for a file of a size. ok is false if it is to be
// ignored; the error says that no byte of the file is in it.
func rangeOf(s string, size int64) (offset, length int64, ok bool, err error) {
	spec, isBytes := strings.CutPrefix(s, "bytes=")
	first, last, isRange := strings.Cut(strings.TrimSpace(spec), "-")
	if !isBytes || !isRange || strings.Contains(spec, ",") {
		return 0, 0, false, nil
	}
	from, err1 := strconv.ParseUint(first, 10, 62)
	to, err2 := strconv.ParseUint(last, 10, 62)
	switch {
	case first == "" && err2 == nil:
		offset = max(size-int64(to), 0)
		length = size - offset
	case err1 == nil && last == "":
		offset, length = int64(from), size-int64(from)
	case err1 == nil && err2 == nil && from <= to:
		offset = int64(from)
		length = min(int64(to)+1, size) - offset
	default:
		return 0, 0, false, nil
	}
	if length <= 0 {
		return 0, 0, false, server.Bad(http.StatusRequestedRangeNotSatisfiable, server.BadRange, "", "cannot read this range: the file has %d bytes", size)
	}
	return offset, length, true, nil
}

type writeRequest struct {
	BoxPath
	PathQuery
	Mode      string `query:"mode" pattern:"^0?[0-7]{1,3}$" doc:"Octal; that of a file that is replaced, or 0644, if absent."`
	User      string `query:"user" enum:"user,root" doc:"Owner of a new file."`
	Exclusive bool   `query:"exclusive" doc:"A file that is there is a conflict."`
	Parents   bool   `query:"parents" doc:"Make missing folders."`
}

func (a *API) write(w http.ResponseWriter, r *http.Request, in *writeRequest) error {
	p, err := in.path()
	if err != nil {
		return err
	}
	mode, err := modeOf(in.Mode)
	if err != nil {
		return err
	}
	g, err := a.guest(r.Context(), in.ID, box.ScopeWrite)
	if err != nil {
		return err
	}
	return a.takeFile(w, r, g, p, box.WriteOptions{Mode: mode, User: box.User(in.User), Exclusive: in.Exclusive, Parents: in.Parents})
}

// takeFile makes a file of the body. Nobody sees anything of one that did not
// arrive whole.
func (a *API) takeFile(w http.ResponseWriter, r *http.Request, g box.Guest, name string, o box.WriteOptions) error {
	body := a.arriving(w, r)
	defer body.done()
	e, err := g.Write(r.Context(), name, o, body)
	if body.err != nil {
		return bodyError(body.err)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, entryOf(e))
}

// slowReader reads a body for as long as it comes.
type slowReader struct {
	io.ReadCloser
	x    *server.Exchange
	ctl  *http.ResponseController
	wait time.Duration // at most, for the next byte
	err  error         // other than the end
}

func (a *API) arriving(w http.ResponseWriter, r *http.Request) *slowReader {
	return &slowReader{ReadCloser: r.Body, x: server.Of(r.Context()), ctl: http.NewResponseController(w), wait: a.Body}
}

func (s *slowReader) Read(p []byte) (int, error) {
	s.ctl.SetReadDeadline(time.Now().Add(s.wait)) // not every connection has one
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// done is called when no more is read.
func (s *slowReader) done() { s.x.TakeTime() }

// patient writes for as long as the client takes bytes.
func (a *API) patient(w http.ResponseWriter, r *http.Request) io.Writer {
	return &slowWriter{w, http.NewResponseController(w), r.Context(), a.Stall}
}

type slowWriter struct {
	io.Writer
	ctl   *http.ResponseController
	ctx   context.Context
	stall time.Duration
}

func (s *slowWriter) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		if err := s.ctx.Err(); err != nil {
			return n, err
		}
		s.ctl.SetWriteDeadline(time.Now().Add(s.stall)) // not every connection has one
		m, err := s.Writer.Write(p[:min(len(p), 32<<10)])
		n, p = n+m, p[m:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func writeJSON(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(http.StatusOK)
	w.Write(append(b, '\n')) // a client that went away needs no answer
	return nil
}
