package hostname_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/hostname"
)

func TestNamesAreReadInOneForm(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5) // 250 bytes
	for _, c := range []struct{ in, want string }{
		{"allowed.test", "allowed.test"},
		{"ALLOWED.TEST.", "allowed.test"},
		{"_dmarc.example.com", "_dmarc.example.com"},
		{"r3---sn-4g5e6nez.example.com", "r3---sn-4g5e6nez.example.com"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"BÜCHER.example.", "xn--bcher-kva.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"XN--BCHER-KVA.EXAMPLE", "xn--bcher-kva.example"},
		{"example。com", "example.com"},
		{"ｅｘａｍｐｌｅ.com", "example.com"},
		{"faß.de", "xn--fa-hia.de"},
		{"1.2.3.example", "1.2.3.example"},
		{"1.2.3.4x", "1.2.3.4x"},
		{"0xg", "0xg"},
		{"a.0xyz", "a.0xyz"},
		{long + "abc", long + "abc"},
		{long + "abc.", long + "abc"},
		{strings.Repeat("a", 63) + ".test", strings.Repeat("a", 63) + ".test"},
	} {
		if got, err := hostname.Parse(c.in); err != nil || string(got) != c.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// TestWhatIsNoNameIsRefused has the cases A 4, 5, 7, 8, 9, 10 and B 15, 16, 23
// of the attack list, and their siblings.
func TestWhatIsNoNameIsRefused(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5)
	for _, c := range []struct {
		in   string
		want hostname.Code
	}{
		{"", hostname.Empty}, {".", hostname.Empty},
		{"allowed.test..", hostname.Label}, {"..", hostname.Label}, {"a..b", hostname.Label}, {".a.b", hostname.Label},
		{"allowed。test。。", hostname.Label},
		{strings.Repeat("a", 64) + ".test", hostname.Label},
		{long + "abcd", hostname.Long}, {strings.Repeat("a.", 200), hostname.Long}, {strings.Repeat("a", 5000), hostname.Long},
		{"-a.test", hostname.Label}, {"a-.test", hostname.Label}, {"a.-", hostname.Label},

		{"E%2eA", hostname.Character}, {"A,E", hostname.Character}, {"E#.A", hostname.Character}, {"E/A", hostname.Character},
		{`E\.A`, hostname.Character}, {"E?A", hostname.Character}, {"user@E", hostname.Character}, {"A:443", hostname.Character},
		{"[fe80::1%25eth0]", hostname.Character}, {"fe80::1%eth0", hostname.Character}, {"[::1]", hostname.Character}, {"::1", hostname.Character},
		{"[::ffff:127.0.0.1]", hostname.Character}, {"[v1.fe80::a]", hostname.Character},
		{"E\x00.A", hostname.Character}, {"E\r\n.A", hostname.Character}, {"E\t.A", hostname.Character}, {"E .A", hostname.Character},
		{" A", hostname.Character}, {"A ", hostname.Character}, {"A\x7f", hostname.Character}, {"A\n", hostname.Character},
		{"*.a.test", hostname.Character}, {"a.test;b", hostname.Character}, {"a'b.test", hostname.Character}, {"a.test\xff", hostname.Character},
		{"a.te\xc0\xaest", hostname.Character},
		{"E\u2100.A", hostname.Character}, // maps to a/c
		{"a\uff05\uff12e.test", hostname.Character}, {"a\uff0fb.test", hostname.Character}, {"a\uff03.test", hostname.Character},
		{"a\uff1a443", hostname.Character}, {"a\u2488com", hostname.Unicode}, // 1. in one sign

		{"xn--a.test", hostname.Unicode}, {"xn--.test", hostname.Label}, {"xn--allowed-.test", hostname.Label}, {"xn--0.test", hostname.Unicode}, {"xn--\x41.test", hostname.Unicode},
		{"xn--bcher-kv.test\u00fc", hostname.Unicode}, {"xn--99999999999.test", hostname.Unicode},
		{"a\u05d0.test", hostname.Unicode},       // letters of both directions in one label
		{"a\u202eb.test", hostname.Unicode},      // marks that turn the direction
		{"\u0627\u200da.test", hostname.Unicode}, // a joiner where none may be

		{"1.2.3", hostname.Address}, {"0x7f.1", hostname.Address}, {"127.0.0.1", hostname.Address}, {"127.0.0.1.", hostname.Address}, {"127.1", hostname.Address},
		{"2130706433", hostname.Address}, {"0x7f000001", hostname.Address}, {"0X7F000001", hostname.Address}, {"017700000001", hostname.Address},
		{"0", hostname.Address}, {"0x", hostname.Address}, {"a.0x", hostname.Address}, {"allowed.test.1", hostname.Address}, {"allowed.test.0xfe", hostname.Address},
		{"00000000000000000000000000000177.1", hostname.Address},
		{"①②⑦.0.0.1", hostname.Address}, {"127。0。0。1", hostname.Address}, {"127.0.0.１", hostname.Address}, {"１２７.1", hostname.Address},
		{"169.254.169.254", hostname.Address}, {"１６９。２５４。１６９。２５４", hostname.Address}, {"0ｘ7f.1", hostname.Address}, {"a.٣", hostname.Unicode},
	} {
		got, err := hostname.Parse(c.in)
		var e *hostname.Error
		if !errors.As(err, &e) || e.Code != c.want {
			t.Errorf("Parse(%+q) = %q, %v; want an error with the code %s", c.in, got, err, c.want)
		}
	}
}

// TestBytesThatArePassedOnHaveTheNameItself has what a splice would pass on and
// the upstream might read in another way.
func TestBytesThatArePassedOnHaveTheNameItself(t *testing.T) {
	for _, s := range []string{"a.test", "A.TEST", "xn--bcher-kva.example"} {
		if n, err := hostname.ParseWire(s); err != nil || string(n) != strings.ToLower(s) {
			t.Errorf("ParseWire(%q) = %q, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "a.test.", "\uff41.test", "\u212a.test", "bücher.example", "a\u3002test", "a.test\x00", "127.0.0.1", "a..test"} {
		if n, err := hostname.ParseWire(s); err == nil {
			t.Errorf("ParseWire(%+q) = %q", s, n)
		}
	}
	if n, err := hostname.Parse("\u212a.test"); err != nil || n != "k.test" { // the control: it is that name to who maps it
		t.Errorf("Parse = %q, %v", n, err)
	}
}

func TestHomographsAreOtherNames(t *testing.T) {
	for _, s := range []string{"аllowed.test" /* Cyrillic a */, "allоwed.test", "ａｌｌｏｗｅｄ.test.evil.test", "éxample.test", "exam\u0307ple.test", "allowed\u00ad.test\u00ad.evil.test"} {
		if n, err := hostname.Parse(s); err == nil && (n == "allowed.test" || n == "example.test") {
			t.Errorf("Parse(%+q) = %q", s, n)
		}
	}
	// What is mapped to the same name is the same name, and is judged as it.
	if n, err := hostname.Parse("ａｌｌｏｗｅｄ.test"); err != nil || n != "allowed.test" {
		t.Errorf("full-width letters: %q, %v", n, err)
	}
}

func TestAnErrorShowsNoRawText(t *testing.T) {
	_, err := hostname.Parse("a\x1b[2J\u202e.test" + strings.Repeat("x", 500))
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\u202e") || len(err.Error()) > 300 {
		t.Errorf("error = %q", err)
	}
}

func TestWhatIsKeptHasTheFormOfAName(t *testing.T) {
	for _, s := range []string{"a.example.com", "xn--bcher-kva.example", "_x.a-b.example"} {
		if n, err := hostname.Kept(s); string(n) != s || err != nil {
			t.Errorf("%q: %q, %v", s, n, err)
		}
	}
	for _, s := range []string{"", ".", "a.", "A.example.com", "a..b", "a b.c", "a\n300 b.c", "bücher.example", "1.2.3.4", "a.0x7f", "-a.b", strings.Repeat("a", 64) + ".b", strings.Repeat("a23456789.", 26) + "com", "*.a.b", "a/b.c", "\x1b[2J.c"} {
		if n, err := hostname.Kept(s); n != "" || err == nil {
			t.Errorf("%q is a name", s)
		}
	}
}
