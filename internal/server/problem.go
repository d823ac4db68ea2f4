package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Problem is the body of every answer that is an error.
type Problem struct {
	Code      int    `json:"code" doc:"The HTTP status."`
	Message   string `json:"message" doc:"What failed: it begins with the verb, and names the thing."`
	ErrorCode string `json:"error_code" doc:"The class of the error, for programs: it stays as it is when the message is put better."`
	Hint      string `json:"hint,omitempty" doc:"The way out, if there is one."`

	retry time.Duration
}

// Error implements error.
func (p *Problem) Error() string { return p.Message }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Code }

// GetHeaders returns what belongs into the answer's header: Retry-After in
// whole seconds (RFC 9110, section 10.2.3) wherever a later try may succeed,
// and what kind of key is wanted (section 11.6.1).
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	switch p.ErrorCode {
	case string(box.Exhausted), string(box.Unavailable):
		h.Set("Retry-After", strconv.FormatInt(max(1, int64((p.retry+time.Second-1)/time.Second)), 10))
	case Unauthenticated:
		h.Set("WWW-Authenticate", `Bearer realm="sunaba"`)
	}
	return h
}

// Write answers with p.
func (p *Problem) Write(w http.ResponseWriter) {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Code)
	json.NewEncoder(w).Encode(p) // a client that went away needs no answer
}

// Classes of errors that are HTTP's own; all others are those of box.Kind.
const (
	Unauthenticated  = "unauthenticated"
	WrongHost        = "wrong_host"
	MethodNotAllowed = "method_not_allowed"
	TooLarge         = "too_large"
	MediaType        = "unsupported_media_type"
	BadRange         = "range_not_satisfiable"
	Malformed        = "malformed"
	Timeout          = "timeout"
	NoUpgrade        = "upgrade_required"
	Gone             = "client_gone" // for the log and the metrics: nobody reads it
)

// statusGone is of nobody's registry; nginx writes it into its logs for a client
// that closed its connection before it had its answer.
const statusGone = 499

// Status returns the HTTP status of a kind of error.
func Status(k box.Kind) int {
	switch k {
	case box.Invalid:
		return http.StatusUnprocessableEntity
	case box.Denied:
		return http.StatusForbidden
	case box.NotFound:
		return http.StatusNotFound
	case box.Conflict:
		return http.StatusConflict
	case box.Exhausted:
		return http.StatusTooManyRequests
	case box.Unsupported:
		return http.StatusNotImplemented
	case box.Unavailable, box.Unusable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// Explain turns an error into what the caller is told. A fault of ours is told
// without its words, which may name what is nobody's business: they go to the
// log, under the request's id. What was given up because the client went away is
// no fault: ctx, the request's own, has ended.
func Explain(ctx context.Context, err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var e *box.Error
	known := errors.As(err, &e)
	switch {
	case known && e.Kind != box.Fault:
		return &Problem{Code: Status(e.Kind), Message: e.Message, ErrorCode: string(e.Kind), Hint: e.Hint, retry: e.Retry}
	case !known && errors.Is(err, context.DeadlineExceeded):
		return &Problem{Code: http.StatusServiceUnavailable, ErrorCode: string(box.Unavailable),
			Message: "cannot wait any longer: the box does not answer", Hint: "try again, or destroy the box"}
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		Of(ctx).left(err)
		return &Problem{Code: statusGone, ErrorCode: Gone, Message: "cannot go on: the client went away"}
	}
	x := Of(ctx)
	x.fault(err)
	return &Problem{Code: http.StatusInternalServerError, ErrorCode: string(box.Fault),
		Message: fmt.Sprintf("cannot do this: an internal error, number %s in the log", x.ID),
		Hint:    "tell the operator this number"}
}

// Bad is a Problem that is HTTP's own.
func Bad(status int, class, hint, format string, args ...any) *Problem {
	return &Problem{Code: status, ErrorCode: class, Hint: hint, Message: fmt.Sprintf(format, args...)}
}
