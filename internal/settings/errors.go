package settings

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// Error is one thing that is wrong in a file.
type Error struct {
	File         string
	Line, Column int    // from 1; the column counts characters
	Key          string // full name, as in resource_limits.memory; empty if it is about the file
	Err          *box.Error
}

// Error implements error, in the form file:line:column: message.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Err.Message)
}

// Unwrap returns the message without its place.
func (e *Error) Unwrap() error { return e.Err }

// Errors is everything that is wrong in a file, in the order of
// its lines.
type Errors []*Error

// Error implements error, one line for each.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

var errNotPlain = errors.New("cannot write what is not plain YAML")

// UnknownKey says that there is no such key, and which one was likely meant.
func UnknownKey(op, key, section string, near string) *box.Error {
	where := ""
	if section != "" {
		where = " in " + section
	}
	if near != "" {
		return box.Errorf(box.Invalid, op, "cannot use unknown key %s%s; did you mean %s?", Plain(key), where, near)
	}
	return box.Errorf(box.Invalid, op, "cannot use unknown key %s%s", Plain(key), where)
}
