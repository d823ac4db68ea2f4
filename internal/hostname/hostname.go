// Package hostname is the one parser of host names.
//
// A name comes to the gateway in many ways: in a DNS question, in a TLS hello,
// in a Host header, in a policy file. Whenever two rooms read a name in two
// ways, one of them judges a host and the other one reaches another: that is how
// filters are passed by a dot at the end, by a capital letter, by a NUL byte, or
// by a digit in a circle that some library turns into a 1. So every room uses
// [Parse], compares [Name] values only, and never looks at the text again.
//
// A Name is in the form that is sent over the wire: lower case, A-labels
// (xn--...), no dot at the end. Text that can be read as an IP address by
// anybody is no name, also after Unicode was mapped to ASCII: the last label is
// what decides (WHATWG URL, "ends in a number").
//
// A [Pattern] is what a policy says of names: one name, or all names below one.
// It is text that people review, so it is accepted in the canonical form only;
// the error says what that is.
//
// Nothing here does I/O; all functions are safe for concurrent use.
package hostname

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// The bounds of RFC 1035, in bytes of the text without a dot at the end.
const (
	MaxName  = 253
	MaxLabel = 63
)

// maxText bounds what is looked at at all, in bytes: a name in another script
// is longer before it is mapped.
const maxText = 4 * MaxName

// Name is a host name: lower-case A-labels, without a dot at the end. A value
// that was not made by [Parse] or [ParsePattern] has no meaning.
type Name string

// Parse reads a host name as it comes in a packet. One dot at the end is taken
// away, once. The error is an [*Error].
func Parse(s string) (Name, error) {
	fail := func(c Code, why string) (Name, error) { return "", &Error{Code: c, Text: s, Why: why} }
	if s == "" {
		return fail(Empty, "it is empty")
	}
	if len(s) > maxText {
		return fail(Long, "it is too long")
	}
	ascii := true
	for i := range len(s) {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			ascii = false
		case !letter(c) && c != '.' && (c < 'A' || c > 'Z'):
			return fail(Character, "it has a character that no host name has")
		}
	}
	name := strings.ToLower(s)
	if !ascii {
		if !utf8.ValidString(s) {
			return fail(Character, "it is not UTF-8")
		}
		mapped, err := lookup().ToASCII(s)
		if err != nil {
			return fail(Unicode, "it is no internationalized name (IDNA)")
		}
		name = mapped
	}
	name = strings.TrimSuffix(name, ".")
	if code, why := check(name, checkPunycode); code != "" {
		return fail(code, why)
	}
	return Name(name), nil
}

// Kept reads a name that Parse returned and that was written down since. It has the
// form of one, whoever wrote it; only that its A-labels are what Parse makes of their
// text is not looked at again, which takes long.
func Kept(s string) (Name, error) {
	if code, why := check(s, nil); code != "" {
		return "", &Error{Code: code, Text: s, Why: why}
	}
	return Name(s), nil
}

// check says what is wrong with a name in the form that is sent.
func check(name string, punycode func(label string) (Code, string)) (Code, string) {
	if name == "" {
		return Empty, "it is empty"
	}
	if len(name) > MaxName {
		return Long, "it is longer than 253 bytes"
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		code, why := checkLabel(label)
		if code == "" && punycode != nil && strings.HasPrefix(label, "xn--") {
			code, why = punycode(label)
		}
		if code != "" {
			return code, why
		}
		last = label
	}
	if number(last) {
		return Address, "it ends in a number, so that some programs read it as an IP address"
	}
	return "", ""
}

// ParseWire reads a host name in bytes that are passed on as they are, such as
// those of a TLS hello that is spliced: whoever gets them reads them anew, and
// nobody knows what it makes of another script or of a dot at the end. So only
// the name itself is one here; capitals are equal to small letters for
// everybody. The error is an [*Error].
func ParseWire(s string) (Name, error) {
	n, err := Parse(s)
	switch {
	case err != nil:
		return "", err
	case !isASCII(s):
		return "", &Error{Code: Unicode, Text: s, Why: "it is not in the form that is sent (A-labels)", Fix: string(n)}
	case len(s) != len(n):
		return "", &Error{Code: Label, Text: s, Why: "it has a dot at the end", Fix: string(n)}
	}
	return n, nil
}

// lookup is the profile of UTS 46 for looking names up, with the rule for
// right-to-left text. Hyphens at places 3 and 4 are in names that exist;
// checkLabel takes care of xn--. Underscores and lengths are checked there, too.
func lookup() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckJoiners(true),
		idna.CheckHyphens(false), idna.StrictDomainName(false), idna.VerifyDNSLength(false))
}

func checkLabel(label string) (Code, string) {
	switch {
	case label == "":
		return Label, "it has an empty label"
	case len(label) > MaxLabel:
		return Label, "it has a label of more than 63 bytes"
	case label[0] == '-' || label[len(label)-1] == '-':
		return Label, "it has a label that begins or ends with a hyphen"
	}
	for i := range len(label) {
		if !letter(label[i]) {
			return Character, "it has a character that no host name has"
		}
	}
	return "", ""
}

// checkPunycode refuses an A-label that decodes to plain ASCII, or that is not what
// its own text encodes to: it is a second spelling of some name.
func checkPunycode(label string) (Code, string) {
	text, err := lookup().ToUnicode(label)
	if err != nil || isASCII(text) {
		return Unicode, "it has a label that is no Punycode"
	}
	if again, err := lookup().ToASCII(text); err != nil || again != label {
		return Unicode, "it has a label that is no canonical Punycode"
	}
	return "", ""
}

// letter reports whether c may be in a label.
func letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// number reports whether a parser of IPv4 addresses would take a last label for
// a number: decimal, octal, or hexadecimal (0x alone is zero).
func number(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
