// Package httppath turns the path of a request into the one form that rules are
// compared with and that the upstream gets.
//
// A rule that allows /public/** is worth nothing if the gateway reads
// /public/%2e%2e/secret as a path below /public and the server behind it reads
// /secret. The gap is closed from both ends: what servers are known to read in
// different ways is refused (an encoded slash, a backslash, a NUL, a second
// layer of percent-encoding, "..;" of servlet containers), and the rest is
// written anew: the decision is about the canonical bytes, and these are what is
// forwarded, so nobody interprets the original any more.
//
// The package knows the path only. What comes after a question mark is not
// its concern and must be cut off before.
package httppath

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Max is the longest path that is read, in bytes.
const Max = 8 << 10

// Error says why a path is refused.
type Error struct {
	Path string // as it came; hostile
	Why  string // half a sentence
}

// Error implements error. The path is quoted and cut.
func (e *Error) Error() string {
	p := e.Path
	if len(p) > 128 {
		p = p[:128] + "..."
	}
	return fmt.Sprintf("cannot use path %+q: %s", p, e.Why)
}

// Canonical returns the canonical form of a path in origin form. The result
// begins with a slash, has no empty, "." or ".." segment (but may end with a
// slash), and each byte that may stand for itself does; what must be encoded is
// so, with capital letters. Canonical of the result is the result. The error is
// an [*Error].
func Canonical(raw string) (string, error) {
	fail := func(why string) (string, error) { return "", &Error{raw, why} }
	switch {
	case len(raw) > Max:
		return fail("it is longer than 8 KiB")
	case raw == "" || raw[0] != '/':
		return fail("it does not begin with a slash")
	}
	text, why := decode(raw)
	if why != "" {
		return fail(why)
	}
	var kept []string
	slash := false // the path ends with a slash
	for i, seg := range strings.Split(text, "/") {
		if i == 0 {
			continue
		}
		slash = false
		bare, ends := bareOf(seg)
		switch {
		case seg == "" || seg == ".":
			slash = true
		case seg == "..":
			if len(kept) == 0 {
				return fail("it leads above the root")
			}
			kept, slash = kept[:len(kept)-1], true
		case strings.Trim(bare, ".") == "", ends != "" && strings.Trim(ends, ".") == "":
			return fail("it has a segment of dots, spaces, parameters or other marks alone, which servers read in different ways")
		default:
			kept = append(kept, seg)
		}
	}
	out := "/" + strings.Join(kept, "/")
	if slash && len(kept) > 0 {
		out += "/"
	}
	return out, nil
}

// decode checks each byte and writes each percent-encoding in its one form.
func decode(raw string) (text, why string) {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '%' {
			if !plain(c) {
				return "", "it has a character that must be encoded, or that servers read in different ways"
			}
			b.WriteByte(c)
			continue
		}
		v, ok := digits(raw, i+1)
		switch {
		case !ok:
			return "", "it has a percent sign without two hexadecimal digits"
		case v == '/' || v == '\\':
			return "", "it has an encoded slash, which servers read in different ways"
		case v < 0x20 || v == 0x7f:
			return "", "it has an encoded control character"
		case unreserved(v):
			b.WriteByte(v)
		case v >= utf8.RuneSelf:
			r, n := runeAt(raw, i)
			if n == 0 {
				return "", "it has encoded bytes that are not UTF-8"
			}
			if unicode.IsControl(r) {
				return "", "it has an encoded control character"
			}
			if lookalike(r) {
				return "", "it has a character that some servers read as a dot, slash or percent sign"
			}
			b.WriteString(strings.ToUpper(raw[i : i+3*n]))
			i += 3 * (n - 1)
		default:
			fmt.Fprintf(&b, "%%%02X", v)
		}
		i += 2
	}
	text = b.String()
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], "%25") {
			if _, ok := digits(text, i+3); ok || strings.HasPrefix(text[i+3:], "u") {
				return "", "it is encoded twice"
			}
		}
	}
	return text, ""
}

// Blank reports whether some server takes a character for nothing: spaces of all
// scripts, and marks that have no shape.
func Blank(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Zs, r) || Shapeless(r) }

// Shapeless reports whether a character is a mark that nothing is seen of, which HFS+,
// for one, passes over: Default_Ignorable_Code_Point in UAX 44, and all others of
// format.
func Shapeless(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// bareOf is what a servlet container or a Windows server may see of a segment: without
// parameters, blanks, and marks that stand on others. ends is what one sees of it that
// looks for the end of the path in what it has decoded, or knows streams of files: up
// to a question mark, a hash or a colon.
func bareOf(seg string) (bare, ends string) {
	if text, err := url.PathUnescape(seg); err == nil { // what is encoded was found to be so
		seg = text
	}
	if i := strings.IndexAny(seg, semicolons); i >= 0 {
		seg = seg[:i]
	}
	bare = strings.Map(func(r rune) rune {
		if Blank(r) || unicode.In(r, unicode.Mn, unicode.Me) {
			return -1
		}
		return r
	}, seg)
	if i := strings.IndexAny(bare, ":?#\uff1a\uff1f\uff03\ufe55\ufe56\ufe5f"); i >= 0 { // of any width
		return bare, bare[:i]
	}
	return bare, bare
}

// runeAt decodes the encoded bytes at raw[i:] as one character of n bytes; n is
// 0 if they are none. utf8 refuses overlong forms and surrogates.
func runeAt(raw string, i int) (r rune, n int) {
	var buf []byte
	for len(buf) < utf8.UTFMax {
		at := i + 3*len(buf)
		v, ok := digits(raw, at+1)
		if !ok || raw[at] != '%' {
			break
		}
		buf = append(buf, v)
		if utf8.FullRune(buf) {
			break
		}
	}
	r, n = utf8.DecodeRune(buf)
	if r == utf8.RuneError && n <= 1 || n != len(buf) {
		return 0, 0
	}
	return r, n
}

// digits reads two hexadecimal digits at s[i:].
func digits(s string, i int) (byte, bool) {
	if i+1 >= len(s) {
		return 0, false
	}
	hi, ok1 := hexDigit(s[i])
	lo, ok2 := hexDigit(s[i+1])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// unreserved is RFC 3986's set: these bytes mean the same encoded or not.
func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// plain is what a path may hold as it is: RFC 3986's pchar and the slash.
func plain(c byte) bool {
	return unreserved(c) || c == '/' || strings.IndexByte("!$&'()*+,;=:@", c) >= 0
}

// lookalike lists what compatibility mapping (NFKC) turns into a slash, a
// backslash, a percent sign or nothing but dots, and what old code pages of
// Windows have in the backslash's place.
func lookalike(r rune) bool {
	switch r {
	case 0x2024, 0x2025, 0x2026, 0xfe19, 0xfe30, 0xfe52, 0xff0e: // dots
		return true
	case 0x2044, 0x2215, 0x29f8, 0xff0f, 0x2100, 0x2101, 0x2105, 0x2106: // a slash, or one between letters
		return true
	case 0x29f5, 0xfe68, 0xff3c, 0x00a5, 0x20a9: // a backslash
		return true
	case 0xfe6a, 0xff05: // a percent sign
		return true
	}
	return false
}

// semicolons lists what begins the parameters of a segment, for some server:
// itself, and what compatibility mapping turns into it.
const semicolons = ";\u037e\ufe14\ufe54\uff1b"
