package hostname_test

import (
	"errors"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

func pattern(t *testing.T, s string) hostname.Pattern {
	t.Helper()
	p, err := hostname.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAWildcardStandsForWholeLabelsBelow(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.example.com", "a.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "evil-example.com", false},
		{"*.example.com", "evilexample.com", false},
		{"*.example.com", "example.com.evil.net", false},
		{"*.example.com", "a.example.com.evil.net", false},
		{"*.example.com", "a.example.comx", false},
		{"example.com", "example.com", true},
		{"example.com", "a.example.com", false},
		{"example.com", "xexample.com", false},
	} {
		n, err := hostname.Parse(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := pattern(t, c.pattern).Match(n); got != c.want {
			t.Errorf("%s matches %s: %v, want %v", c.pattern, n, got, c.want)
		}
	}
	if (hostname.Pattern{}).Match("") || (hostname.Pattern{}).Match("a.test") || pattern(t, "*.a.test").Match(".a.test") {
		t.Error("what is nothing matched")
	}
}

func TestPatternsAreWrittenInOneForm(t *testing.T) {
	for _, c := range []struct {
		in   string
		code hostname.Code
		fix  string
	}{
		{"*", hostname.Wildcard, ""}, {"*.com", hostname.Wildcard, ""}, {"ex*mple.com", hostname.Wildcard, ""}, {"example.*", hostname.Wildcard, ""},
		{"a.*.com", hostname.Wildcard, ""}, {"**.example.com", hostname.Wildcard, ""}, {"*.*.com", hostname.Wildcard, ""}, {"*example.com", hostname.Wildcard, ""},
		{"*.", hostname.Empty, ""}, {"", hostname.Empty, ""}, {"*..com", hostname.Label, ""},
		{"API.example.com", hostname.Form, "api.example.com"}, {"api.example.com.", hostname.Form, "api.example.com"},
		{"*.BÜCHER.example", hostname.Form, "*.xn--bcher-kva.example"}, {"аpi.example.com", hostname.Form, "xn--pi-6kc.example.com"},
		{"api.example.com\n*.evil.test", hostname.Wildcard, ""}, {"api.example.com\nevil.test", hostname.Character, ""},
		{"api.example.com #x", hostname.Character, ""}, {"api.example.com ", hostname.Character, ""},
		{"10.0.0.1", hostname.Address, ""}, {"*.10.1", hostname.Address, ""}, {".example.com", hostname.Label, ""},
	} {
		_, err := hostname.ParsePattern(c.in)
		var e *hostname.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Fix != c.fix {
			t.Errorf("ParsePattern(%q): %v (fix %q); want code %s, fix %q", c.in, err, fixOf(e), c.code, c.fix)
		}
	}
}

func fixOf(e *hostname.Error) string {
	if e == nil {
		return ""
	}
	return e.Fix
}

func TestPatternsCover(t *testing.T) {
	for _, c := range []struct {
		p, q   string
		covers bool
	}{
		{"*.a.test", "b.a.test", true}, {"*.a.test", "*.b.a.test", true}, {"*.a.test", "*.a.test", true}, {"*.a.test", "a.test", false},
		{"b.a.test", "*.a.test", false}, {"*.b.a.test", "*.a.test", false}, {"*.a.test", "*.xa.test", false}, {"a.test", "a.test", true},
	} {
		if got := pattern(t, c.p).Covers(pattern(t, c.q)); got != c.covers {
			t.Errorf("%s covers %s: %v", c.p, c.q, got)
		}
	}
}

func TestSpecialNames(t *testing.T) {
	for n, want := range map[hostname.Name]bool{
		"localhost": true, "foo.localhost": true, "a.local": true, "metadata.google.internal": true, "host.docker.internal": true, "intranet": true,
		"x.onion": true, "1.0.0.127.in-addr.arpa": true, "example.com": false, "localhost.example.com": false, "notlocal.test": false,
	} {
		if why, _ := hostname.Special(n); (why != "") != want {
			t.Errorf("Special(%s) = %q", n, why)
		}
	}
	for n, want := range map[hostname.Name]bool{"metadata.google.internal": true, "x.metadata.google.internal": true, "xmetadata.google.internal": false, "metadata": true, "metadata.example.com": false} {
		if hostname.Metadata(n) != want {
			t.Errorf("Metadata(%s) = %v", n, !want)
		}
	}
}
