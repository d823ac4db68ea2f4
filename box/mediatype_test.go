package box

import (
	"regexp"
	"strings"
	"testing"
)

// The expression says the same, and takes a tenth of the time that this program has
// to start.
func TestMediaTypesAreSpeltAsTheExpressionSays(t *testing.T) {
	said := regexp.MustCompile(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}(; ?[a-z]{1,20}=[A-Za-z0-9._-]{1,60})?$`)
	l := func(n int) string { return strings.Repeat("a", n) }
	for _, s := range []string{
		"text/plain", "image/svg+xml", "text/html; charset=utf-8", "text/html;charset=utf-8", "application/vnd.x-y.1+json", "1/2",
		"", "/", "text", "text/", "/plain", "Text/plain", "text/Plain", "text/plain;", "text/plain; ", "text/plain;  a=b", "text/plain; a", "text/plain; a=",
		"text/plain; =b", "text/plain; A=b", "text/plain; a=b; c=d", "text/plain; a=b=c", "text/plain; a=\"b\"", "text/pl ain", "text/plain\n", "te/xt/plain", "text/pläin",
		".text/plain", "text/.plain", "text/plain; a=.b", "text/plain; a=_", "te\x00xt/plain", "text/plain; a=b\x00",
		l(64) + "/a", l(65) + "/a", "a/" + l(127), "a/" + l(128), "a/b;" + l(20) + "=c", "a/b;" + l(21) + "=c", "a/b;c=" + l(60), "a/b;c=" + l(61),
	} {
		if got, want := IsMediaType(s), said.MatchString(s); got != want {
			t.Errorf("%q: %v, not %v", s, got, want)
		}
	}
	plain := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	for _, s := range []string{"a", "Z9_-", "-a", "_", "", "a b", "a/b", "a.b", "ä", "a\n", l(64), l(65)} {
		if got, want := IsPlainName(s, 64), plain.MatchString(s); got != want {
			t.Errorf("%q: %v, not %v", s, got, want)
		}
	}
}
