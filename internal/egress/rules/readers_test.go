package rules_test

import (
	"math/rand/v2"
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/sunaba-dev/sunaba/internal/egress/httppath"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// each does something to each segment of a path.
func each(p string, do func(string) string) string {
	segs := strings.Split(p, "/")
	for i := range segs {
		segs[i] = do(segs[i])
	}
	return strings.Join(segs, "/")
}

// readers are servers that make something of a path, once they have decoded it.
func readers() map[string]func(string) string {
	params := func(p string) string {
		return each(p, func(s string) string { s, _, _ = strings.Cut(s, ";"); return s })
	}
	ends := func(p string) string { p, _, _ = strings.Cut(p, "?"); p, _, _ = strings.Cut(p, "#"); return p }
	format := func(p string) string { return strings.TrimSuffix(p, path.Ext(p)) }
	return map[string]func(string) string{
		"all": func(p string) string { return p }, "parameters": params, "end of path": ends, "format": format,
		"format behind parameters": func(p string) string { return format(params(p)) },
		"end behind parameters":    func(p string) string { return ends(params(p)) },
		"format behind end":        func(p string) string { return format(ends(p)) },
		"marks without a shape": func(p string) string {
			return strings.Map(func(r rune) rune {
				if unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
					return -1
				}
				return r
			}, p)
		},
		"forms of letters": norm.NFKC.String,
		"letters": func(p string) string { // as databases compare: neither forms nor accents
			return strings.Map(func(r rune) rune {
				if r >= 0x300 && r < 0x370 {
					return -1
				}
				return r
			}, strings.ReplaceAll(norm.NFKD.String(p), "ß", "ss"))
		},
		"blanks and dots": func(p string) string {
			return each(p, func(s string) string { return strings.TrimRight(strings.TrimSpace(s), ". ") })
		},
		"streams": func(p string) string {
			return each(p, func(s string) string {
				if i := strings.IndexByte(s, ':'); i > 0 && strings.Contains(s[i:], ":$") {
					return s[:i]
				}
				return s
			})
		},
	}
}

// Whatever a path is made of: if it is allowed, no server reads it as one that is
// denied. The control is that each reader finds some that only what denies widely keeps
// from it.
func TestNoServerReadsADeniedPathInOneThatIsAllowed(t *testing.T) {
	const head = "version: 1\nhosts:\n  - { host: a.test, port: 80, rules: [ { paths: ['/**'] }"
	denying, _ := policy(t, head+", { name: no, paths: ['/secret/**', '/a/*/kill'], decide: deny } ] }\n").Host("a.test", 80)
	denied := func(p string) bool {
		p = strings.ToLower(strings.ToUpper(path.Clean("/" + p)))
		segs := strings.Split(p, "/")
		return p == "/secret" || strings.HasPrefix(p, "/secret/") || len(segs) == 4 && segs[1] == "a" && segs[2] != "" && segs[3] == "kill"
	}
	parts := strings.Fields("/ / / secret secret SECRET a a kill x . .. ; ;a=b %3b %20 %3f %23 %e2%80%8b %c2%ad %c2%a0 : ::$DATA :$I30 .json .2 * %2a %c5%bfecret sec ret %CC%81 + %ef%bb%bf K ill %e2%93%a2ecret %cb%a2ecret s%c3%a9cret %cd%8f %ef%b8%8f %e3%85%a4 %ef%be%a0 ki%e2%85%bc kil%f0%9d%90%a5 se%e2%84%82ret %ef%b9%96 %ef%b9%94 %e2%81%87")
	r := rand.New(rand.NewPCG(1, 2))
	allowed, kept := 0, map[string]int{}
	for range 60_000 {
		raw := "/"
		for range 1 + r.IntN(7) {
			raw += parts[r.IntN(len(parts))]
		}
		c, err := httppath.Canonical(raw)
		if err != nil {
			continue
		}
		text, err := url.PathUnescape(c)
		if err != nil {
			t.Fatal(err)
		}
		ok := denying.Request(rules.Request{Method: "GET", Path: c}).Allow
		if ok {
			allowed++
		}
		for name, read := range readers() {
			if !denied(read(text)) {
				continue
			}
			if kept[name]++; ok {
				t.Errorf("%q is allowed as %q, and a server that looks for %s reads %q", raw, c, name, read(text))
			}
		}
	}
	for name := range readers() {
		if kept[name] < 50 {
			t.Errorf("%d paths were denied to a server that looks for %s", kept[name], name)
		}
	}
	if allowed < 1000 {
		t.Errorf("%d paths are allowed", allowed)
	}
}
