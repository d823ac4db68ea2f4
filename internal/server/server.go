// Package server is the front of the daemon: what every request passes, whatever
// language it speaks.
//
// A request is given an id, its Host is compared with the names that this
// server goes by, its key becomes a box.Caller, and only then it is handed to
// one of the interfaces (REST, MCP), each of which translates to box.Service
// and sees nothing below it. Nothing here knows who owns what: that is decided
// once, in Service. What is told to the caller about an error is decided once
// too, in [Explain].
//
// There is no CORS: a page in a browser has no business here, and one that
// makes a name of its own point to this machine is refused by its Host header
// (DNS rebinding).
package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Config says what a server is made of.
type Config struct {
	// Auth turns a key into a caller. An error of kind Denied, NotFound or
	// Invalid says that the key is none; it is told in the same words always.
	Auth func(ctx context.Context, key string) (box.Caller, error)
	// Mounts are the interfaces, in any order.
	Mounts []Mount
	// Loopback restricts the Host header to localhost, 127.0.0.1 and [::1], and
	// to Hosts. Without it every name is taken, unless Hosts names some.
	Loopback bool
	Hosts    []string // further names, without a port
	// Ready says whether work can be taken on; nil = always.
	Ready func(context.Context) error
	// Gauges are read at each call of /metrics; may be nil.
	Gauges func() []Gauge
	// OpenMetrics serves /metrics without a key. Else it takes one with the
	// scope admin.
	OpenMetrics bool
	// Log gets a line for each request; nil = none.
	Log *slog.Logger
}

// Mount is a part of the server's names.
type Mount struct {
	Pattern string // as for http.ServeMux, without a method: "/v1/"
	Handler http.Handler
	Public  bool // no key is asked for; the handler decides itself
}

// New returns the server as a handler. Its life is that of the caller's
// http.Server, for which see [HTTP].
func New(c Config) http.Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	s := &front{Config: c, mux: http.NewServeMux(), counts: newCounts(), held: held{of: map[string]int64{}}}
	s.mux.HandleFunc("GET /healthz", s.healthy)
	s.mux.HandleFunc("GET /readyz", s.ready)
	if c.OpenMetrics {
		s.mux.HandleFunc("GET /metrics", s.metrics)
	} else {
		s.mux.Handle("GET /metrics", s.keyed(http.HandlerFunc(s.metrics)))
	}
	for _, m := range c.Mounts {
		if m.Public {
			s.mux.Handle(m.Pattern, m.Handler)
		} else {
			s.mux.Handle(m.Pattern, s.keyed(m.Handler))
		}
	}
	s.mux.Handle("/", s.keyed(http.HandlerFunc(nowhere)))
	return s
}

// HTTP returns an http.Server for h with bounds on what a client may hold
// without saying anything. It has no bound on the length of an answer: streams
// have their own.
func HTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

type front struct {
	Config
	mux    *http.ServeMux
	counts *counts
	held   held
}

// ServeHTTP implements http.Handler.
func (s *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := newExchange(w, r)
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	x.receive(r)
	x.w.Header().Set("X-Request-Id", x.ID)
	x.w.Header().Set("X-Content-Type-Options", "nosniff")
	x.w.Header().Set("Cache-Control", "no-store")
	start := time.Now()
	s.counts.begin()
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler {
			x.fault(box.Errorf(box.Fault, "serve", "cannot serve: panic: %v\n%s", v, debug.Stack()))
			if x.w.status == 0 {
				Explain(r.Context(), x.failure()).Write(x.w)
				v = nil
			}
		}
		took := time.Since(start)
		s.counts.end(route(r), x.w.status, took)
		s.note(r, x, took, v != nil)
		if v != nil {
			panic(http.ErrAbortHandler) // what was begun cannot be told as an error: the connection is cut
		}
	}()
	if !s.knows(r.Host) {
		Bad(http.StatusMisdirectedRequest, WrongHost, "use localhost, or tell the server this name",
			"cannot answer for this host name: it is none of this server's").Write(x.w)
		return
	}
	s.mux.ServeHTTP(x.w, r)
}

// keyed asks for a key.
func (s *front) keyed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := s.authenticate(r)
		if err != nil {
			Explain(r.Context(), err).Write(w)
			return
		}
		Of(r.Context()).Caller = caller
		done, err := s.held.take(caller.Tenant, r)
		if err != nil {
			Explain(r.Context(), err).Write(w)
			return
		}
		defer done()
		h.ServeHTTP(w, r)
	})
}

// route is the pattern that r was served by.
func route(r *http.Request) string {
	if r.Pattern == "" || r.Pattern == "/" {
		return "none"
	}
	if slices.Contains(strings.Fields(r.Pattern), r.Method) {
		return r.Pattern
	}
	return r.Method + " " + r.Pattern
}

func nowhere(w http.ResponseWriter, r *http.Request) {
	Bad(http.StatusNotFound, string(box.NotFound), "see /openapi.json for what there is", "cannot find this path").Write(w)
}
