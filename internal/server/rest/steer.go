package rest

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

type signalRequest struct {
	ProcessPath
	Body struct {
		Signal string `json:"signal" minLength:"1" maxLength:"16" doc:"A name, as TERM or SIGTERM, or a number from 1 to 64."`
		Group  *bool  `json:"group,omitempty" doc:"Also to the process group that it leads; true if absent."`
	}
}

func (a *API) signal(ctx context.Context, in *signalRequest) error {
	g, ref, err := a.process(ctx, in.ProcessPath, box.ScopeExec)
	if err != nil {
		return err
	}
	n, err := signalNumber(in.Body.Signal)
	if err != nil {
		return err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	return g.Signal(ctx, ref, n, in.Body.Group == nil || *in.Body.Group)
}

// signalNumber knows the names of Linux on amd64 and arm64 (signal(7)).
func signalNumber(s string) (int, error) {
	names := strings.Fields("HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS")
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	for i, n := range names {
		if n == name {
			return i + 1, nil
		}
	}
	if n, err := strconv.ParseUint(s, 10, 8); err == nil && n >= 1 && n <= 64 {
		return int(n), nil
	}
	return 0, box.Errorf(box.Invalid, "signal", "cannot send %q: it is no signal", s)
}

type resizeRequest struct {
	ProcessPath
	Body WindowSize
}

func (a *API) resize(ctx context.Context, in *resizeRequest) error {
	g, ref, err := a.process(ctx, in.ProcessPath, box.ScopeExec)
	if err != nil {
		return err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	return g.Resize(ctx, ref, box.WindowSize{Rows: in.Body.Rows, Cols: in.Body.Cols})
}

func (a *API) forget(ctx context.Context, in *ProcessPath) error {
	g, ref, err := a.process(ctx, *in, box.ScopeExec)
	if err != nil {
		return err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	return g.Forget(ctx, ref)
}

// maxInput bounds one piece of input, in bytes.
const maxInput = 1 << 20

type inputRequest struct {
	ProcessPath
	At  int64 `query:"at" minimum:"0" doc:"Position of the first byte in all input: the same bytes at the same position twice are written once. Of a body that is not JSON, which must have it."`
	End bool  `query:"end" doc:"Nothing follows. Of a body that is not JSON."`
}

// InputPiece is a piece of input as JSON.
type InputPiece struct {
	At   int64   `json:"at" minimum:"0" doc:"Position of the first byte in all input."`
	Data *string `json:"data,omitempty" doc:"Text; or"`
	Raw  []byte  `json:"data_base64,omitempty" doc:"bytes."`
	End  bool    `json:"end,omitempty" doc:"Nothing follows; a terminal gets its end-of-file character."`
}

// InputTaken says how much was written.
type InputTaken struct {
	Next int64 `json:"next" doc:"The position behind the last byte written. It may be fewer than were sent: send the rest from there."`
}

func (a *API) input(w http.ResponseWriter, r *http.Request, in *inputRequest) error {
	g, ref, err := a.process(r.Context(), in.ProcessPath, box.ScopeExec)
	if err != nil {
		return err
	}
	piece, err := a.readInput(w, r, in)
	if err != nil {
		return err
	}
	ctx, cancel := a.call(r.Context())
	defer cancel()
	next, err := g.Input(ctx, ref, piece)
	if err != nil {
		return err
	}
	return writeJSON(w, InputTaken{next})
}

func (a *API) readInput(w http.ResponseWriter, r *http.Request, in *inputRequest) (box.Input, error) {
	body := a.arriving(w, r)
	defer body.done()
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case "application/json":
		var p struct {
			InputPiece
			At *int64 `json:"at"` // instead of the one that reads as 0 if it is not there
		}
		r.Body = body
		if err := rawJSON(r, 2*maxInput, &p); err != nil {
			return box.Input{}, err
		}
		data, err := either("data", p.Data, p.Raw)
		switch {
		case err != nil:
			return box.Input{}, err
		case p.At == nil:
			return box.Input{}, noPosition("body")
		case *p.At < 0:
			return box.Input{}, box.Errorf(box.Invalid, "read body", "cannot use at: %d is below 0", *p.At)
		}
		return box.Input{At: *p.At, Data: data, End: p.End}, nil
	case "application/octet-stream", "":
		if !r.URL.Query().Has("at") {
			return box.Input{}, noPosition("query")
		}
		data, err := io.ReadAll(http.MaxBytesReader(w, body, maxInput))
		return box.Input{At: in.At, Data: data, End: in.End}, bodyError(err)
	}
	return box.Input{}, server.Bad(http.StatusUnsupportedMediaType, server.MediaType, "send application/octet-stream or application/json", "cannot read the body: it has another media type")
}

// noPosition refuses input that does not say where it belongs. Taken for 0, all
// but the first piece would pass for one that was written already, and be dropped.
func noPosition(where string) error {
	return box.Errorf(box.Invalid, "read "+where, "cannot write: the %s has no at, the position of the first byte", where).
		WithHint("send at=0 first, and then what was answered as next")
}

// bodyError says what is wrong with a body.
func bodyError(err error) error {
	var large *http.MaxBytesError
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return server.Bad(http.StatusRequestEntityTooLarge, server.TooLarge, "send less at once", "cannot read the body: it is longer than %d bytes", large.Limit)
	case errors.As(err, &network) && network.Timeout():
		return server.Bad(http.StatusRequestTimeout, server.Timeout, "send it again", "cannot read the body: it did not come in time")
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return box.Errorf(box.Invalid, "read body", "cannot use the key %s: it is not known", strings.TrimPrefix(err.Error(), "json: unknown field "))
	}
	return server.Bad(http.StatusBadRequest, server.Malformed, "see /openapi.json for what is understood", "cannot read the body: %v", err)
}
