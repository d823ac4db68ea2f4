package mcp

import (
	"context"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// maxBody bounds one message of a client, in bytes: a file to write, as base64,
// is the largest.
const maxBody = 16 << 20

// Handler serves the streamable HTTP transport, behind package server's front:
// that has compared the Host header and turned the key into who calls.
//
// No session is kept and no Mcp-Session-Id given out. When a client closes its
// connection, the call that it made is ended. A browser's request from another
// site is refused: its Origin is not its Host.
func (s *Server) Handler() http.Handler {
	streamable := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		Stateless:                    true,
		Logger:                       s.cfg.Logger,
		MaxRequestBodyBytes:          maxBody,
		PropagateRequestCancellation: true,
		DisableLocalhostProtection:   true, // the front has looked, and knows more names
	})
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := server.CallerOf(r.Context())
		if caller.Tenant == "" {
			server.Explain(r.Context(), box.Errorf(box.Fault, "serve", "cannot serve: no front has authenticated this request")).Write(w)
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
