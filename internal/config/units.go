package config

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// What the parsers below accept, in words.
const (
	allowedSize     = "whole bytes, or a whole number with b, k, m, g or t (powers of 1024; also ki, kb, kib and so on)"
	allowedCPU      = `cores such as 0.5 or "2", or thousandths such as "1500m"`
	allowedDuration = "seconds such as 60 or 0.5, or a duration such as 90s, 2m, 1h30m, 500ms"
)

// ParseSize reads a number of bytes: whole bytes, or a whole number followed
// by b, k, m, g or t in either case, which are powers of 1024 however they are
// written (k, ki, kb and kib are the same). The result is never negative. The
// error is a [*box.Error] of kind Invalid.
func ParseSize(s string) (int64, error) {
	n, err := parseSize(s)
	return n, standalone("size", s, err)
}

// ParseCPU reads an amount of processor in thousandths of a core: "0.5" and
// "500m" are both 500. A finer fraction is an error. The result is never
// negative. The error is a [*box.Error] of kind Invalid.
func ParseCPU(s string) (milli int64, err error) {
	milli, err = parseCPU(s)
	return milli, standalone("cpu", s, err)
}

// ParseDuration reads a time: a number is seconds, and the forms of
// [time.ParseDuration] are accepted but for a sign. The result is never
// negative. The error is a [*box.Error] of kind Invalid.
func ParseDuration(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	return d, standalone("duration", s, err)
}

func standalone(what, s string, err error) error {
	if err == nil {
		return nil
	}
	return box.Errorf(box.Invalid, "parse", "cannot read %s %s: %v", what, quote(s), err)
}

func parseSize(s string) (int64, error) {
	if strings.HasPrefix(s, "-") {
		return 0, fmt.Errorf("negative; allowed: %s", allowedSize)
	}
	digits, unit := splitNumber(s)
	shift := 0
	switch strings.ToLower(unit) {
	case "", "b":
	case "k", "ki", "kb", "kib":
		shift = 10
	case "m", "mi", "mb", "mib":
		shift = 20
	case "g", "gi", "gb", "gib":
		shift = 30
	case "t", "ti", "tb", "tib":
		shift = 40
	default:
		if digits == "" {
			return 0, fmt.Errorf("not a size; allowed: %s", allowedSize)
		}
		if unit[0] == '.' {
			return 0, fmt.Errorf("not a whole number; use a smaller unit; allowed: %s", allowedSize)
		}
		return 0, fmt.Errorf("unknown unit %s; allowed: %s", quote(unit), allowedSize)
	}
	n, err := parseDecimal(digits, 0)
	if err != nil {
		return 0, fmt.Errorf("%w; allowed: %s", err, allowedSize)
	}
	if n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("too large to count in bytes; allowed: %s", allowedSize)
	}
	return n << shift, nil
}

func parseCPU(s string) (int64, error) {
	places, number := 3, s
	if cut, ok := strings.CutSuffix(s, "m"); ok {
		places, number = 0, cut
	}
	n, err := parseDecimal(number, places)
	if err != nil {
		return 0, fmt.Errorf("%w; allowed: %s", err, allowedCPU)
	}
	return n, nil
}

func parseDuration(s string) (time.Duration, error) {
	if strings.Trim(s, "0123456789.") == "" {
		n, err := parseDecimal(s, 9)
		if err != nil {
			return 0, fmt.Errorf("%w; allowed: %s", err, allowedDuration)
		}
		return time.Duration(n), nil
	}
	if s[0] == '-' {
		return 0, fmt.Errorf("negative; allowed: %s", allowedDuration)
	}
	d, err := time.ParseDuration(s)
	if err != nil || s[0] < '0' || s[0] > '9' {
		return 0, fmt.Errorf("not a duration; allowed: %s", allowedDuration)
	}
	return d, nil
}

// splitNumber cuts leading ASCII digits from what follows them.
func splitNumber(s string) (digits, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// parseDecimal reads an unsigned decimal number with at most the given number
// of places after the point and returns it times 10^places. There is no sign,
// no exponent, no separator and no leading zero: 010 is eight to some readers.
func parseDecimal(s string, places int) (int64, error) {
	whole, rest := splitNumber(s)
	fraction, pointed := strings.CutPrefix(rest, ".")
	switch {
	case strings.HasPrefix(s, "-"):
		return 0, fmt.Errorf("negative")
	case whole == "", !pointed && rest != "", strings.Trim(fraction, "0123456789") != "", pointed && fraction == "":
		return 0, fmt.Errorf("not a plain decimal number")
	case len(whole) > 1 && whole[0] == '0':
		return 0, fmt.Errorf("leading zero")
	}
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > places {
		if places == 0 {
			return 0, fmt.Errorf("not a whole number")
		}
		return 0, fmt.Errorf("more than %d places after the point", places)
	}
	var n uint64
	for _, c := range whole + fraction + strings.Repeat("0", places-len(fraction)) {
		high, low := bits.Mul64(n, 10)
		low, carry := bits.Add64(low, uint64(c-'0'), 0)
		if high+carry > 0 || low > math.MaxInt64 {
			return 0, fmt.Errorf("too large")
		}
		n = low
	}
	return int64(n), nil
}
