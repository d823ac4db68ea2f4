package config

import (
	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// Error is one thing that is wrong in a configuration file; its Key is the full
// name below sandbox.
type Error = settings.Error

// Errors is everything that is wrong in a configuration file, in the order of
// its lines.
type Errors = settings.Errors

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
