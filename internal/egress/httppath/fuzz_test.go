package httppath_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/httppath"
)

// FuzzCanonical holds the canonical form against what upstreams make of it: the
// standard library's parser and path cleaning, a server that decodes once more,
// one that drops parameters, and one that splits the decoded text.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%2e%2e/x", "//x", "/a;b/..;/c", "/%c3%a9", "/a%2525", "/%25%32%65", "/a%20", "/...", "/a/.%20./b", "/%ef%bc%8e", "/a//b/.././c/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := httppath.Canonical(raw)
		if err != nil {
			if c != "" {
				t.Fatalf("%q beside an error", c)
			}
			return
		}
		if again, err := httppath.Canonical(c); err != nil || again != c {
			t.Fatalf("Canonical(%q) = %q, and of that %q, %v", raw, c, again, err)
		}
		u, err := url.ParseRequestURI(c)
		if err != nil || u.Host != "" || u.RawQuery != "" || u.Fragment != "" || u.EscapedPath() != c && u.RawPath != "" && u.RawPath != c {
			t.Fatalf("Canonical(%q) = %q, which net/url reads as %+v, %v", raw, c, u, err)
		}
		clean := func(p string) string { // as servers do, keeping a slash at the end
			out := path.Clean(p)
			if strings.HasSuffix(p, "/") && out != "/" {
				out += "/"
			}
			return out
		}
		if clean(u.Path) != u.Path {
			t.Fatalf("Canonical(%q) = %q, which a server cleans to %q", raw, c, clean(u.Path))
		}
		if strings.Count(u.Path, "/") != strings.Count(c, "/") || strings.ContainsAny(u.Path, "\\\x00\r\n") {
			t.Fatalf("Canonical(%q) = %q, decoded %q", raw, c, u.Path)
		}
		if twice, err := url.PathUnescape(u.Path); err == nil && twice != u.Path {
			t.Fatalf("Canonical(%q) = %q, which decoded twice is %q", raw, c, twice)
		}
		var bare []string
		for seg := range strings.SplitSeq(u.Path, "/") {
			seg, _, _ = strings.Cut(seg, ";")
			seg, _, _ = strings.Cut(seg, "?")
			seg, _, _ = strings.Cut(seg, "#")
			bare = append(bare, strings.TrimSpace(seg))
		}
		if slices.Contains(bare, "..") || slices.Contains(bare, ".") {
			t.Fatalf("Canonical(%q) = %q, which is %q without parameters and what ends a path", raw, c, bare)
		}
		// The standard library's own server must not redirect it to another path.
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, &http.Request{Method: "GET", Host: "a.test", URL: u})
		if rec.Code != http.StatusTeapot {
			t.Fatalf("Canonical(%q) = %q, which net/http answers with %d to %q", raw, c, rec.Code, rec.Header().Get("Location"))
		}
	})
}
