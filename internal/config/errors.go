package config

import (
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// Error is one thing that is wrong in a configuration file.
type Error struct {
	File         string
	Line, Column int    // from 1; the column counts characters
	Key          string // full name below sandbox, as in resource_limits.memory; empty if it is about the file
	Err          *box.Error
}

// Error implements error, in the form file:line:column: message.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Err.Message)
}

// Unwrap returns the message without its place.
func (e *Error) Unwrap() error { return e.Err }

// Errors is everything that is wrong in a configuration file, in the order of
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

const (
	opLoad = "load configuration"
	opSet  = "set configuration"
)

// cannotSet names the key and what was given before a bare reason. The kind
// and the hint of a *box.Error are kept.
func cannotSet(op, key, given string, err error) *box.Error {
	out := box.Errorf(box.Invalid, op, "cannot set %s to %s: %v", key, given, err)
	if e, ok := err.(*box.Error); ok {
		out.Kind, out.Hint = e.Kind, e.Hint
	}
	return out
}

// unknownKey says that there is no such key, and which one was likely meant.
func unknownKey(op, key, section string, near string) *box.Error {
	where := ""
	if section != "" {
		where = " in " + section
	}
	if near != "" {
		return box.Errorf(box.Invalid, op, "cannot use unknown key %s%s; did you mean %s?", plain(key), where, near)
	}
	return box.Errorf(box.Invalid, op, "cannot use unknown key %s%s", plain(key), where)
}

// plain leaves a word as it is and quotes everything else.
func plain(s string) string {
	if s != "" && len(s) <= 64 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789_-.") == "" {
		return s
	}
	return quote(s)
}
