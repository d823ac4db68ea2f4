package hostname_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// FuzzParse holds each name against what a name must be, in plain words, and
// against the standard library's idea of an address.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a.test", "A.TEST.", "bücher.example", "xn--bcher-kva.example", "127。0。0。1", "①②⑦.0.0.1", "0x7f.1", "a..b", "*.a.test", "faß.de", "xn--.a", "\u0627\u200d.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := hostname.Parse(s)
		if err != nil {
			if n != "" {
				t.Fatalf("%q beside an error", n)
			}
			return
		}
		if k, err := hostname.Kept(string(n)); k != n || err != nil {
			t.Fatalf("%q was written down and is %q (%v)", n, k, err)
		}
		name := string(n)
		if len(name) > 253 || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Fatalf("Parse(%q) = %q", s, name)
		}
		for label := range strings.SplitSeq(name, ".") {
			if label == "" || len(label) > 63 {
				t.Fatalf("Parse(%q) = %q", s, name)
			}
		}
		if _, err := netip.ParseAddr(name); err == nil || net.ParseIP(name) != nil {
			t.Fatalf("Parse(%q) = %q, an address", s, name)
		}
		if last := name[strings.LastIndexByte(name, '.')+1:]; strings.Trim(last, "0123456789") == "" {
			t.Fatalf("Parse(%q) = %q ends in a number", s, name)
		}
		for _, again := range []string{name, name + ".", strings.ToUpper(name)} {
			if m, err := hostname.Parse(again); err != nil || m != n {
				t.Fatalf("Parse(%q) = %q, but Parse(%q) = %q, %v", s, n, again, m, err)
			}
		}
		p, err := hostname.ParsePattern(name)
		if err != nil || !p.Match(n) || p.String() != name {
			t.Fatalf("ParsePattern(%q) = %q, %v", name, p, err)
		}
	})
}

// FuzzParsePattern: a pattern is what it says, and a star reaches whole labels
// only.
func FuzzParsePattern(f *testing.F) {
	f.Add("*.a.test", "b.a.test")
	f.Add("a.test", "a.test")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := hostname.ParsePattern(pattern)
		if err != nil {
			return
		}
		if p.String() != pattern || strings.Count(pattern, "*") > 1 || p.Wild() && strings.Count(pattern, ".") < 2 {
			t.Fatalf("%q became %q", pattern, p)
		}
		n, err := hostname.Parse(name)
		if err != nil {
			return
		}
		want := string(n) == pattern
		if p.Wild() {
			want = strings.HasSuffix("."+string(n), pattern[1:]) && "."+string(n) != pattern[1:]
		}
		if p.Match(n) != want {
			t.Fatalf("%q matches %q: %v", pattern, n, !want)
		}
	})
}
