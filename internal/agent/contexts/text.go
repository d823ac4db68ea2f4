package contexts

import (
	"strings"
	"unicode/utf8"
)

// wholeRunes is how many bytes of b do not belong to a character that is cut off
// at its end. Bytes that are no text at all count as whole.
func wholeRunes(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}

// valid is b as text, with U+FFFD in the place of what is none.
func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
