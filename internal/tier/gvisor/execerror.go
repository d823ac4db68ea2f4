package gvisor

import (
	"errors"
	"strings"
	"unicode/utf8"

	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

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
		{wire.ErrTooLong.Error(), "its arguments and environment are too long"},
	} {
		if strings.Contains(text, m.in) {
			why = m.out
			break
		}
	}
	return box.Errorf(box.Invalid, "run", "cannot run %q: %s", name, strings.TrimSpace(why))
}

// diedStarting is what a runner says of a sentry that came to its end before it was up,
// and then what that said, if anything.
const diedStarting = "its kernel ended while it started"

// kernelEnded puts gVisor's words for that into a person's.
func kernelEnded(err error) error {
	_, words, ok := strings.Cut(err.Error(), diedStarting)
	if !ok && !strings.Contains(err.Error(), "waiting for sandbox to start") {
		return err
	}
	return box.Errorf(box.Fault, "start sandbox", "cannot start sandbox: %s%s", diedStarting, stream.Clean([]byte(words))).
		WithHint("`sunaba doctor` tries each step; with SUNABA_DEBUG=FOLDER (writable for all) gVisor writes there what it did")
}

// brief is the error of a call of the guest's kernel without the stacks of where it was
// found, which are in its log.
func brief(err error) error {
	if err == nil {
		return nil
	}
	if !errors.As(err, new(urpc.RemoteError)) {
		return errors.New("the guest's kernel ended meanwhile")
	}
	return oneLine(err)
}

// oneLine is the first line of an error, without the names of all that it passed
// through while the guest's root was made.
func oneLine(err error) error {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if i := strings.LastIndex(line, "setupFS: "); i >= 0 {
		line = line[i+len("setupFS: "):]
	}
	if r := []rune(line); len(r) > briefRunes {
		line = string(r[:briefRunes]) + "..."
	}
	return errors.New(strings.TrimRight(line, ": "))
}

const briefRunes = 300

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
