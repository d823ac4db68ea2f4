package gvisor

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
)

// errTooLong is returned for a request that does not fit into one message.
var errTooLong = errors.New("the request is too long")

// cannotRun says in a person's words why the guest's kernel did not start a
// program. gVisor wraps its errors in the names of its own layers; the whole
// text is in its log (Config.Debug).
func cannotRun(name string, err error) *box.Error {
	text := err.Error()
	notFound := "not found in the box"
	if strings.Contains(name, "/") {
		notFound += " (it, or the interpreter that it names)"
	}
	why := text[strings.LastIndex(text, ": ")+1:]
	for _, m := range []struct{ in, out string }{
		{"no such file or directory", notFound},
		{"not a directory", notFound},
		{"error finding executable", notFound},
		{"permission denied", "not executable"},
		{"exec format error", "not a program this machine can run"},
		{"argument list too long", "its arguments and environment are too long"},
		{errTooLong.Error(), "its arguments and environment are too long"},
	} {
		if strings.Contains(text, m.in) {
			why = m.out
			break
		}
	}
	return box.Errorf(box.Invalid, "run", "cannot run %q: %s", name, strings.TrimSpace(why))
}

// checkText refuses arguments and variables that are not UTF-8: gVisor's
// control protocol is JSON, which would replace such bytes by others.
func checkText(cmd box.Command) error {
	for i, a := range cmd.Argv {
		if !utf8.ValidString(a) {
			return box.Errorf(box.Invalid, "run", "cannot run %q: argument %d is not UTF-8: %q", cmd.Argv[0], i, a)
		}
	}
	for _, v := range cmd.Env {
		if !utf8.ValidString(v) {
			return box.Errorf(box.Invalid, "run", "cannot run %q: a variable is not UTF-8: %q", cmd.Argv[0], v)
		}
	}
	if !utf8.ValidString(cmd.Dir) {
		return box.Errorf(box.Invalid, "run", "cannot run %q: the folder to start in is not UTF-8: %q", cmd.Argv[0], cmd.Dir)
	}
	return nil
}
