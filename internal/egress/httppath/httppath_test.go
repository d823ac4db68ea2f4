package httppath_test

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/httppath"
)

func TestPathsAreWrittenInOneForm(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"/", "/"}, {"/a/b", "/a/b"}, {"/a/b/", "/a/b/"}, {"/%61/%7Eb", "/a/~b"}, {"/a%2Db", "/a-b"}, {"/a%2ejson", "/a.json"},
		{"/public/../secret", "/secret"}, {"/public/%2e%2e/secret", "/secret"}, {"/public/.%2E/secret", "/secret"}, {"/public/./x", "/public/x"},
		{"//secret", "/secret"}, {"/a//b///c", "/a/b/c"}, {"/a/.", "/a/"}, {"/a/b/..", "/a/"}, {"/a/..", "/"}, {"//", "/"}, {"/./", "/"},
		{"/a%20b", "/a%20b"}, {"/%c3%a9", "/%C3%A9"}, {"/a%3Fb", "/a%3Fb"}, {"/a%23b", "/a%23b"}, {"/x;v=1/y", "/x;v=1/y"}, {"/x%3bv", "/x%3Bv"},
		{"/100%25", "/100%25"}, {"/100%25x", "/100%25x"}, {"/.hidden", "/.hidden"}, {"/a..b", "/a..b"}, {"/a.", "/a."}, {"/%ef%bc%9fq", "/%EF%BC%9Fq"}, {"/x%ef%bc%9by", "/x%EF%BC%9By"}, {"/%e2%92%88x", "/%E2%92%88x"}, {"/@x/$y/(z)*!'", "/@x/$y/(z)*!'"}, {"/a:b=c,d+e&f", "/a:b=c,d+e&f"},
	} {
		got, err := httppath.Canonical(c.in)
		if err != nil || got != c.want {
			t.Errorf("Canonical(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// TestWhatServersReadDifferentlyIsRefused has case E 58 of the attack list and
// its siblings.
func TestWhatServersReadDifferentlyIsRefused(t *testing.T) {
	for _, in := range []string{
		"", "a", "*", "http://e/x", "?x", "/..", "/../x", "/a/../../b", "/%2e%2e/x",
		"/public/..%2fsecret", "/public/..%2Fsecret", "/public%2f..%2fsecret", "/a%5cb", "/a%5C..%5cb", `/a\b`, `/..\x`, "/a%00b", "/a%00", "/a%0ab", "/a%0d%0aX: y", "/a%7f", "/a%c2%85b", "/a%c2%9bb", "/a%1b",
		"/x;v=1/..;/secret", "/..;/x", "/..;a=b/x", "/a/..%3b/x", "/a/..%3Ba/x", "/a/.;/x", "/a/%2e%2e;/x", "/;/x", "/;a=b/x",
		"/...", "/a/.../b", "/a/....//x", "/a/..%20/x", "/a/%20../x", "/a/.%20./x", "/a/%20/x", "/%c2%a0.%c2%a0", "/a/..%c2%a0/x", "/a/%e2%80%8b../x", "/a/.%ef%bb%bf./x", "/a/%e3%80%80../x", "/a/%c2%ad./x", "/a/..%c2%85/x", "/%e2%80%8b",
		"/%252e%252e/x", "/%252fx", "/a%2525", "/%25%32%65/x", "/%252%65/x", "/%25%32e/x", "/%25u002e", "/%u002e/x", "/a%25%32%46b",
		"/%c0%ae%c0%ae/x", "/%c0%af", "/%e0%80%ae", "/%f0%80%80%ae", "/%ed%a0%80", "/%ff", "/%c3", "/%c3x", "/%c3%", "/%80", "/%c3%28", "/%f4%90%80%80",
		"/%ef%bc%8e%ef%bc%8e/x", "/a%ef%bc%8fb", "/a%ef%bc%bcb", "/a%e2%88%95b", "/a%e2%81%84b", "/%e2%80%a5/x", "/%ef%bc%852e", "/%ef%b8%b0/x", "/a/%ef%b8%99/b", "/%ef%b9%92%ef%b9%92/x", "/a%c2%a5b", "/a%e2%82%a9b", "/%e2%84%80",
		"/..%ef%bc%9b/x", "/a/..%cd%bea/x", "/%ef%bc%9bx/y", "/a/.%ef%b9%94/x", "/..%ef%b8%94",
		"/a/..%3f", "/a/..%3fb/c", "/a/%2e.%23x", "/a/.%3F", "/a/..%20%3f", "/a/.::$DATA/x", "/a/..:$I30/x", "/a/..%ef%bc%9f/x", "/a/..%cc%b8", "/a/%cc%b8./x", "/a/.%e2%83%9d./x", "/%cc%b8",
		"/a%", "/a%2", "/a%zz", "/a%2g", "/%", "/a b", "/a\tb", "/a\x00b", "/a\r\nb", "/é", "/a\xff", "/a#b", "/a?b", `/a"b`, "/a<b", "/a|b", "/a^b", "/a`b", "/a{b}", "/a[b]",
		"/" + strings.Repeat("a", httppath.Max),
	} {
		if got, err := httppath.Canonical(in); err == nil {
			t.Errorf("Canonical(%q) = %q", in, got)
		}
	}
	if _, err := httppath.Canonical("/" + strings.Repeat("a", httppath.Max-1)); err != nil {
		t.Errorf("the longest path is refused: %v", err)
	}
}

func TestAnErrorShowsNoRawText(t *testing.T) {
	_, err := httppath.Canonical("/\x1b[2J" + strings.Repeat("x", 5000))
	if err == nil || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 400 {
		t.Errorf("error = %q", err)
	}
}
