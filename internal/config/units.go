package config

import (
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// ParseSize reads a number of bytes: whole bytes, or a whole number followed
// by b, k, m, g or t in either case, which are powers of 1024 however they are
// written (k, ki, kb and kib are the same). The result is never negative. The
// error is a [*box.Error] of kind Invalid.
func ParseSize(s string) (int64, error) {
	n, err := settings.Size(s)
	return n, standalone("size", s, err)
}

// ParseCPU reads an amount of processor in thousandths of a core: "0.5" and
// "500m" are both 500. A finer fraction is an error. The result is never
// negative. The error is a [*box.Error] of kind Invalid.
func ParseCPU(s string) (milli int64, err error) {
	milli, err = settings.CPU(s)
	return milli, standalone("cpu", s, err)
}

// ParseDuration reads a time: a number is seconds, and the forms of
// [time.ParseDuration] are accepted but for a sign. The result is never
// negative. The error is a [*box.Error] of kind Invalid.
func ParseDuration(s string) (time.Duration, error) {
	d, err := settings.Duration(s)
	return d, standalone("duration", s, err)
}

func standalone(what, s string, err error) error {
	if err == nil {
		return nil
	}
	return box.Errorf(box.Invalid, "parse", "cannot read %s %s: %v", what, settings.Quote(s), err)
}
