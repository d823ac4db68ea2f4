package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// wrong is an error about what was asked for.
func wrong(format string, v ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, v...))
}

// failed tells of a kernel's refusal: what was tried, with which path, and the
// kernel's words. An error that has a code already is passed on.
func failed(verb, path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*connect.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if n, ok := errors.AsType[unix.Errno](err); ok {
		err = n
	}
	return connect.NewError(codeOf(err), fmt.Errorf("cannot %s %s: %w", verb, shown(path), err))
}

// codeOf maps what a kernel says to what the protocol says.
func codeOf(err error) connect.Code {
	n, _ := errors.AsType[unix.Errno](err)
	switch n {
	case unix.ENOENT, unix.ESRCH:
		return connect.CodeNotFound
	case unix.EEXIST, unix.ENOTEMPTY:
		return connect.CodeAlreadyExists
	case unix.EACCES, unix.EPERM, unix.EROFS:
		return connect.CodePermissionDenied
	case unix.EINVAL, unix.ENOTDIR, unix.EISDIR, unix.ENAMETOOLONG, unix.ELOOP, unix.EXDEV, unix.EBUSY, unix.ENXIO,
		unix.ENOEXEC, unix.E2BIG, unix.ETXTBSY, unix.EPIPE, unix.EIO, unix.EFBIG, unix.ENODATA, unix.ERANGE,
		unix.ECONNREFUSED, unix.EMLINK, unix.ENODEV:
		return connect.CodeInvalidArgument
	case unix.ENOSPC, unix.EDQUOT, unix.EAGAIN, unix.EMFILE, unix.ENFILE, unix.ENOMEM:
		return connect.CodeResourceExhausted
	case unix.ENOSYS, unix.EOPNOTSUPP:
		return connect.CodeUnimplemented
	}
	return connect.CodeInternal
}

// shown is a path for a message: as it is, or quoted if it is not plain text.
func shown(path string) string {
	if utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return path
	}
	return strconv.Quote(path)
}

// retry repeats a system call that a signal interrupted.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if err != unix.EINTR {
			return v, err
		}
	}
}
