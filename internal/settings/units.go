package settings

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
)

// What the parsers below accept, in words.
const (
	AllowedSize     = "whole bytes, or a whole number with b, k, m, g or t (powers of 1024; also ki, kb, kib and so on)"
	AllowedCPU      = `cores such as 0.5 or "2", or thousandths such as "1500m"`
	AllowedDuration = "seconds such as 60 or 0.5, or a duration such as 90s, 2m, 1h30m, 500ms"
)

// Size reads a number of bytes, as AllowedSize says; powers of 1024. The result
// is never negative; an error is a bare reason.
func Size(s string) (int64, error) {
	if strings.HasPrefix(s, "-") {
		return 0, fmt.Errorf("negative; allowed: %s", AllowedSize)
	}
	digits, unit := SplitNumber(s)
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
			return 0, fmt.Errorf("not a size; allowed: %s", AllowedSize)
		}
		if unit[0] == '.' {
			return 0, fmt.Errorf("not a whole number; use a smaller unit; allowed: %s", AllowedSize)
		}
		return 0, fmt.Errorf("unknown unit %s; allowed: %s", Quote(unit), AllowedSize)
	}
	n, err := Decimal(digits, 0)
	if err != nil {
		return 0, fmt.Errorf("%w; allowed: %s", err, AllowedSize)
	}
	if n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("too large to count in bytes; allowed: %s", AllowedSize)
	}
	return n << shift, nil
}

// CPU reads an amount of processor in thousandths of a core, as AllowedCPU says.
// An error is a bare reason.
func CPU(s string) (int64, error) {
	places, number := 3, s
	if cut, ok := strings.CutSuffix(s, "m"); ok {
		places, number = 0, cut
	}
	n, err := Decimal(number, places)
	if err != nil {
		return 0, fmt.Errorf("%w; allowed: %s", err, AllowedCPU)
	}
	return n, nil
}

// Duration reads a time, as AllowedDuration says. The result is never negative;
// an error is a bare reason.
func Duration(s string) (time.Duration, error) {
	if strings.Trim(s, "0123456789.") == "" {
		n, err := Decimal(s, 9)
		if err != nil {
			return 0, fmt.Errorf("%w; allowed: %s", err, AllowedDuration)
		}
		return time.Duration(n), nil
	}
	if s[0] == '-' {
		return 0, fmt.Errorf("negative; allowed: %s", AllowedDuration)
	}
	d, err := time.ParseDuration(s)
	if err != nil || s[0] < '0' || s[0] > '9' {
		return 0, fmt.Errorf("not a duration; allowed: %s", AllowedDuration)
	}
	return d, nil
}

// SplitNumber cuts leading ASCII digits from what follows them.
func SplitNumber(s string) (digits, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// Decimal reads an unsigned decimal number with at most the given number
// of places after the point and returns it times 10^places. There is no sign,
// no exponent, no separator and no leading zero: 010 is eight to some readers.
func Decimal(s string, places int) (int64, error) {
	whole, rest := SplitNumber(s)
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
