package box

import (
	"errors"
	"fmt"
	"time"
)

// Kind classes an Error for callers that must choose what to do.
type Kind string

// Kinds.
const (
	Invalid     Kind = "invalid"     // the request is wrong; say it differently
	Denied      Kind = "denied"      // policy forbids it
	Unsupported Kind = "unsupported" // this tier or this build cannot do it
	Unusable    Kind = "unusable"    // this host cannot do it; doctor says why
	NotFound    Kind = "not_found"
	Conflict    Kind = "conflict"    // it exists already, or its state does not permit it
	Unavailable Kind = "unavailable" // a box does not answer now; try again
	Exhausted   Kind = "exhausted"   // a quota or the host is full; try later
	Fault       Kind = "fault"       // our failure; the detail is for the log
)

// Error is a failure of Sunaba, not of the program in the box.
type Error struct {
	Op      string // the operation that failed, as in "create box"
	Kind    Kind
	Message string        // for the caller: starts with the verb that failed and names the thing
	Hint    string        // the way out, if there is one
	Retry   time.Duration // when it is worth to try again, for Exhausted and Unavailable; 0 = unknown
	Err     error         // the cause, for errors.Is and the log; already part of Message
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error. A %w verb keeps the cause.
func Errorf(kind Kind, op, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Op: op, Kind: kind, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns a copy of e that says what the caller can do.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// KindOf returns the kind of the first *Error in err's chain, else Fault.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Fault
}
