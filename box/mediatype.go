package box

import "strings"

// IsMediaType reports whether s is the name of a media type as RFC 6838 4.2
// restricts it (a type of at most 64 bytes, without capitals, and a subtype of at
// most 127), with one parameter at most, whose name and value need no quotes.
func IsMediaType(s string) bool {
	kind, rest, ok := strings.Cut(s, "/")
	sub, parameter, more := strings.Cut(rest, ";")
	const marks = "!#$&^_.+-"
	if !ok || !spelt(kind, 64, lower+digits, marks) || !spelt(sub, 127, lower+upper+digits, marks) {
		return false
	}
	if !more {
		return true
	}
	name, value, ok := strings.Cut(strings.TrimPrefix(parameter, " "), "=")
	return ok && spelt(name, 20, lower, "") && spelt("a"+value, 61, lower+upper+digits, "._-") && value != ""
}

// IsPlainName reports whether s can stand in a URL, a file name and a log as it is:
// letters, digits, - and _, at most so many bytes.
func IsPlainName(s string, most int) bool {
	return s != "" && spelt("a"+s, most+1, lower+upper+digits, "_-")
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// spelt reports whether s has 1 to most bytes, begins with one of first, and has
// only those and more after it.
func spelt(s string, most int, first, more string) bool {
	return s != "" && len(s) <= most && strings.IndexByte(first, s[0]) >= 0 && strings.Trim(s[1:], first+more) == ""
}
