package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// maxLogged bounds a path in the log, in bytes.
const maxLogged = 512

// healthy says that the process serves.
func (s *front) healthy(w http.ResponseWriter, _ *http.Request) {
	say(w, http.StatusOK, "ok")
}

// ready says whether it can take on work. Why not is for the log: the question
// needs no key.
func (s *front) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.Ready(r.Context()); err != nil {
		Of(r.Context()).fault(err)
		w.Header().Set("Retry-After", "1")
		say(w, http.StatusServiceUnavailable, "not ready")
		return
	}
	say(w, http.StatusOK, "ready")
}

func say(w http.ResponseWriter, status int, word string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"status": word})
}

func (s *front) metrics(w http.ResponseWriter, r *http.Request) {
	if !s.OpenMetrics {
		if err := CallerOf(r.Context()).May(box.ScopeAdmin); err != nil {
			Explain(r.Context(), err).Write(w)
			return
		}
	}
	var gauges []Gauge
	if s.Gauges != nil {
		gauges = s.Gauges()
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.counts.write(w, gauges)
}

// note writes the request's line. It has no header, no body and no query: keys,
// signatures and what a program says are in those.
func (s *front) note(r *http.Request, x *Exchange, took time.Duration, cut bool) {
	path := []byte(r.URL.Path)
	path = path[:min(len(path), maxLogged)]
	attrs := []slog.Attr{
		slog.String("id", x.ID),
		slog.String("method", stream.Clean([]byte(r.Method))),
		slog.String("route", route(r)),
		slog.String("path", stream.Clean(path)),
		slog.Int("status", x.w.status),
		slog.Float64("seconds", took.Seconds()),
	}
	if x.Caller.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", x.Caller.Tenant), slog.String("principal", x.Caller.Principal))
	}
	if cut {
		attrs = append(attrs, slog.Bool("cut", true))
	}
	if err := x.leaving(); err != nil {
		attrs = append(attrs, slog.String("client_gone", stream.Clean([]byte(err.Error()))))
	}
	level := slog.LevelInfo
	if err := x.failure(); err != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("error", stream.Clean([]byte(err.Error()))))
	}
	s.Log.LogAttrs(r.Context(), level, "request", attrs...)
}
