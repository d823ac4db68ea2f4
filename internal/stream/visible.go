package stream

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// printable reports whether c is an ASCII character that stands for itself.
func printable(c byte) bool { return c >= ' ' && c < 0x7f }

// visible reports whether r leaves a mark or a gap that a reader can see, and
// does nothing else. It is a list of what is known to be safe: letters, marks,
// numbers, punctuation, symbols and spaces. Whatever this build's Unicode
// tables (15.0) do not know is not visible, since a later version may make it a
// control.
func visible(r rune) bool {
	switch {
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		// Drawn as nothing although classed as letters or marks: Hangul
		// fillers, the grapheme joiner, variation selectors (UAX #44).
		return false
	case r == '\u2800':
		return false // the empty Braille pattern: a symbol by its class, drawn as nothing
	case unicode.IsPrint(r), unicode.Is(unicode.Zs, r):
		return true
	}
	// Format controls with a shape of their own, such as the Arabic end of
	// ayah: text, not commands.
	return unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// appendRune appends what stands for the first character of src, which is not
// printable ASCII, and returns the number of bytes of src that it stands for.
// That is zero if src ends within a UTF-8 sequence and more may follow.
func appendRune(dst, src []byte, final bool) ([]byte, int) {
	if src[0] < utf8.RuneSelf {
		return appendByte(dst, src[0]), 1
	}
	if !final && !utf8.FullRune(src) {
		return dst, 0
	}
	r, size := utf8.DecodeRune(src)
	switch {
	case r == utf8.RuneError && size == 1:
		return appendByte(dst, src[0]), 1
	case visible(r):
		return append(dst, src[:size]...), size
	default:
		dst = strconv.AppendInt(append(dst, `\u{`...), int64(r), 16)
		return append(dst, '}'), size
	}
}

const hexDigits = "0123456789abcdef"

// appendByte appends a byte that is no character in the form \x1b.
func appendByte(dst []byte, c byte) []byte {
	return append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
}
