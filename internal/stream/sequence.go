package stream

import (
	"slices"
	"strings"
)

// A verdict is what an escape character turns out to begin.
type verdict int

const (
	refused    verdict = iota // not a sequence on the list
	unfinished                // so far the beginning of one
	allowed
)

// sequence judges the escape sequence at the start of p, whose first byte is
// ESC. If it is allowed, n is its length. The verdict is refused as soon as no
// continuation could be allowed, and depends on nothing after the sequence.
func sequence(p []byte) (n int, v verdict) {
	if len(p) < 2 {
		return 0, unfinished
	}
	switch p[1] {
	case '7', '8', '=', '>', 'E', 'M':
		return 2, allowed
	case '(', ')':
		switch {
		case len(p) < 3:
			return 0, unfinished
		case p[2] == 'B' || p[2] == '0':
			return 3, allowed
		}
	case '[':
		return csi(p)
	}
	return 0, refused
}

// csi judges a control sequence: ESC [ parameters final (ECMA-48, 5.4).
// Intermediate bytes and control characters inside, which a terminal would
// obey, are refused.
func csi(p []byte) (n int, v verdict) {
	for i := 2; i < len(p) && i < maxHeld; i++ {
		switch c := p[i]; {
		case c >= '0' && c <= '9', c == ';', c == ':', c == '?' && i == 2:
		case c >= '@' && c <= '~' && allowedCSI(string(p[2:i]), c):
			return i + 1, allowed
		default:
			return 0, refused
		}
	}
	if len(p) < maxHeld {
		return 0, unfinished
	}
	return 0, refused
}

// allowedCSI reports whether a control sequence with these parameters, which
// are made of digits, ; and : with perhaps a ? before them, is on the list.
func allowedCSI(params string, final byte) bool {
	modes := []string{"4", "34"}
	if rest, ok := strings.CutPrefix(params, "?"); ok {
		if final != 'h' && final != 'l' {
			return false
		}
		params, modes = rest, []string{"1", "7", "25", "1049", "2004"}
	}
	switch final {
	case 'h', 'l':
		for mode := range strings.SplitSeq(params, ";") {
			if !slices.Contains(modes, mode) {
				return false
			}
		}
		return true
	case 's', 'u':
		// With parameters these set margins and the keyboard protocol.
		return params == ""
	case 'J':
		return slices.Contains([]string{"", "0", "1", "2"}, params)
	case 'm':
		return numbers(strings.ReplaceAll(params, ":", ";"), maxHeld)
	case 'H', 'f', 'r':
		return numbers(params, 2)
	case 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'Z', 'd', 'K', 'L', 'M', 'P', '@', 'X', 'S', 'T':
		return numbers(params, 1)
	}
	return false
}

// numbers reports whether params is a list of at most max numbers of at most
// five digits, each of which may be missing.
func numbers(params string, max int) bool {
	count := 0
	for number := range strings.SplitSeq(params, ";") {
		if count++; count > max || len(number) > 5 || strings.Contains(number, ":") {
			return false
		}
	}
	return true
}

// privateModes returns the modes that an allowed sequence sets or resets.
func privateModes(seq []byte) ([]string, bool) {
	rest, ok := strings.CutPrefix(string(seq), "\x1b[?")
	if !ok {
		return nil, false
	}
	return strings.Split(rest[:len(rest)-1], ";"), true
}
