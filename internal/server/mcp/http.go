package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
)

// maxBody bounds one message of a client, in bytes: a file to write, as base64,
// is the largest.
const maxBody = 16 << 20

// Handler serves the streamable HTTP transport. authenticate turns the key of
// `Authorization: Bearer KEY` or `X-API-Key: KEY` into who calls; without a key
// that it accepts every request is answered with 401.
//
// No session is kept and no Mcp-Session-Id given out. When a client closes its
// connection, the call that it made is ended. A request of a browser from
// another site is refused (its Origin is not its Host), and so is one that came
// to a loopback address under any other name (DNS rebinding).
func (s *Server) Handler(authenticate func(context.Context, string) (box.Caller, error)) http.Handler {
	streamable := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		Stateless:                    true,
		Logger:                       s.cfg.Logger,
		MaxRequestBodyBytes:          maxBody,
		PropagateRequestCancellation: true,
	})
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := bearer(r.Header)
		if key == "" {
			refuse(w, http.StatusUnauthorized, box.Errorf(box.Denied, "authenticate", "cannot serve this: no API key came with the request").
				WithHint("send it as Authorization: Bearer KEY"))
			return
		}
		caller, err := authenticate(r.Context(), key)
		if err != nil {
			var be *box.Error
			if !errors.As(err, &be) || be.Kind == box.Fault {
				s.cfg.Logger.Error("cannot authenticate", "error", err)
				refuse(w, http.StatusInternalServerError, box.Errorf(box.Fault, "authenticate", "cannot authenticate: internal error"))
				return
			}
			status := http.StatusUnauthorized
			if be.Kind == box.Exhausted || be.Kind == box.Unavailable {
				status = http.StatusServiceUnavailable
				w.Header().Set("Retry-After", strconv.Itoa(max(1, int(be.Retry/time.Second))))
			}
			refuse(w, status, be)
			return
		}
		// Older revisions have no way to cancel a call on a connection of its
		// own, and an answer that nobody can fetch later: the end of the
		// connection is the end of the call.
		ctx := context.WithValue(r.Context(), contextKey{}, &request{caller: caller, done: r.Context().Done()})
		// An answer may take as long as a program; the writer's deadline is not for it.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		streamable.ServeHTTP(w, r.WithContext(ctx))
	}))
}

func bearer(h http.Header) string {
	if scheme, key, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(key)
	}
	return h.Get("X-API-Key")
}

// refuse answers as the REST interface does.
func refuse(w http.ResponseWriter, status int, e *box.Error) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sunaba"`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": status, "message": e.Message, "error_code": e.Kind, "hint": e.Hint})
}
