package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// maxWords bounds what is shown of an agent's words, in bytes.
const maxWords = 1 << 10

var errSilent = errors.New("hear from agent: it does not answer")

// errLie makes the error for an answer that no honest agent gives.
type errLie string

func (e errLie) Error() string { return string(e) }

func lie(format string, args ...any) error { return errLie(fmt.Sprintf(format, args...)) }

// failed turns what went wrong in a call into an error for the caller. ctx is
// the call's own context.
func failed(ctx context.Context, op string, err error) error {
	var made *box.Error
	if errors.As(err, &made) {
		return made
	}
	var told errLie
	if errors.As(err, &told) {
		return box.Errorf(box.Fault, op, "cannot %s: the box's agent gave an answer that cannot be: %w", op, told)
	}
	if ended := context.Cause(ctx); ended != nil {
		if errors.Is(ended, errSilent) {
			return box.Errorf(box.Unavailable, op, "cannot %s: the box does not answer", op)
		}
		return box.Errorf(box.Unavailable, op, "cannot %s: %w", op, ended)
	}
	var e *connect.Error
	if !errors.As(err, &e) {
		return box.Errorf(box.Unavailable, op, "cannot %s: the box does not answer: %w", op, err)
	}
	if connect.IsWireError(err) {
		return box.Errorf(kindOf(e.Code()), op, "cannot %s: %s", op, words(e.Message()))
	}
	// What Connect and net/http say of an answer that they cannot read.
	switch e.Code() {
	case connect.CodeInvalidArgument, connect.CodeResourceExhausted, connect.CodeInternal, connect.CodeUnknown, connect.CodeUnimplemented:
		if t, ok := ctx.Value(tripKey{}).(*trip); !ok || !t.broke() {
			return box.Errorf(box.Fault, op, "cannot %s: the box's agent broke the protocol: %s", op, shown(e.Message()))
		}
	}
	return box.Errorf(box.Unavailable, op, "cannot %s: the box does not answer: %s", op, shown(e.Message()))
}

// kindOf is what a code of Connect means to a caller.
func kindOf(c connect.Code) box.Kind {
	switch c {
	case connect.CodeNotFound:
		return box.NotFound
	case connect.CodeAlreadyExists, connect.CodeFailedPrecondition:
		return box.Conflict
	case connect.CodePermissionDenied:
		return box.Denied
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return box.Invalid
	case connect.CodeResourceExhausted:
		return box.Exhausted
	case connect.CodeUnimplemented:
		return box.Unsupported
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
		return box.Unavailable
	}
	return box.Fault
}

// words shows an agent's text as text, and whose it is.
func words(s string) string {
	if s = shown(s); s == "" {
		return "the box gives no reason"
	}
	return "the box says: " + s
}

// shown makes one line of bounded length out of text that may come from a box.
func shown(s string) string {
	if len(s) > maxWords {
		s = s[:maxWords]
	}
	s = strings.ReplaceAll(stream.Clean([]byte(s)), "\n", `\n`)
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "")
	}
	return s
}
