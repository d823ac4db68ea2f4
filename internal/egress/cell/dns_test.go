package cell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/egress/synth"
)

// Section C of the cases, as far as a box can ask: none of it touches the world.
func TestQuestionsAreAnsweredFromThePolicyAlone(t *testing.T) {
	w := newWorld()
	f := newFarm(t, w, policy(t, "a.example.com:443", "*.wild.example.com:443"))
	for _, c := range []struct {
		name  string
		kind  dnsmessage.Type
		code  dnsmessage.RCode
		addrs int
	}{
		{"a.example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"A.eXample.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 1},
		{"a.example.com.", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, 0}, // 26
		{"a.example.com.", dnsmessage.TypeMX, dnsmessage.RCodeSuccess, 0},
		{"a.example.com.", dnsmessage.TypeCNAME, dnsmessage.RCodeSuccess, 0},
		{"a.example.com.", dnsmessage.Type(10), dnsmessage.RCodeSuccess, 0}, // NULL
		{"a.example.com.", dnsmessage.TypeALL, dnsmessage.RCodeSuccess, 0},
		{"a.example.com.", dnsmessage.Type(65), dnsmessage.RCodeSuccess, 0}, // HTTPS, 35
		{"a.example.com.", dnsmessage.Type(64), dnsmessage.RCodeSuccess, 0}, // SVCB
		{"data.a.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"data.a.example.com.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, 0},
		{"x.wild.example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"wild.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"evil.net.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0}, // 24
		{"aGVsbG8.evil.net.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, 0},
		{"localhost.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0}, // 13
		{"metadata.google.internal.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"4.4.8.8.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError, 0},
		{"127.0.0.1.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"a_b!.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{".", dnsmessage.TypeNS, dnsmessage.RCodeNameError, 0},
	} {
		t.Run(c.name+c.kind.String(), func(t *testing.T) {
			f.t = t
			code, addrs := f.resolve(c.name, c.kind)
			if code != c.code || len(addrs) != c.addrs {
				t.Errorf("%v %v, want %v and %d addresses", code, addrs, c.code, c.addrs)
			}
			for _, a := range addrs {
				if !synth.Contains(a) {
					t.Errorf("%v is not a synthetic address", a)
				}
			}
		})
	}
	if n := w.touched(); n != 0 {
		t.Errorf("the world was touched %d times: %v", n, w.asked)
	}
}

func TestEveryResolverIsTheGateway(t *testing.T) {
	f := newFarm(t, newWorld(), policy(t, "a.example.com:443"))
	q := query(t, "a.example.com.", dnsmessage.TypeA)
	var first netip.Addr
	for _, to := range []string{"198.18.0.1:53", "8.8.8.8:53", "10.0.0.1:53", "169.254.169.253:53", "[fd53:756e:6162:6100::1]:53", "[2001:4860:4860::8888]:53"} {
		b, err := f.ask(to, q)
		if err != nil {
			t.Fatalf("%s does not answer: %v", to, err)
		}
		_, addrs := unpack(t, b)
		c, err := f.dial(to)
		if err != nil {
			t.Fatalf("%s does not answer over TCP: %v", to, err)
		}
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
		size := make([]byte, 2)
		if _, err := io.ReadFull(c, size); err != nil {
			t.Fatalf("%s does not answer over TCP: %v", to, err)
		}
		b = make([]byte, binary.BigEndian.Uint16(size))
		_, _ = io.ReadFull(c, b)
		_, over := unpack(t, b)
		if len(addrs) != 1 || len(over) != 1 || addrs[0] != over[0] || first.IsValid() && addrs[0] != first {
			t.Errorf("%s: %v over UDP, %v over TCP", to, addrs, over)
		}
		first = addrs[0]
	}
}

// Case 33: what is no question is answered FORMERR or not at all.
func TestMalformedQuestionsAreAnsweredShortOrNotAtAll(t *testing.T) {
	f := newFarm(t, newWorld(), policy(t, "a.example.com:443"))
	good := query(t, "a.example.com.", dnsmessage.TypeA)
	change := func(fn func(b []byte) []byte) []byte { return fn(append([]byte(nil), good...)) }
	for name, c := range map[string]struct {
		msg  []byte
		code dnsmessage.RCode // 255: no answer
	}{
		"a good one":           {good, 0},
		"a response":           {change(func(b []byte) []byte { b[2] |= 0x80; return b }), 255},
		"an update":            {change(func(b []byte) []byte { b[2] = 5 << 3; return b }), dnsmessage.RCodeNotImplemented},
		"two questions":        {change(func(b []byte) []byte { b[5] = 2; return append(b, b[12:]...) }), dnsmessage.RCodeFormatError},
		"no question":          {change(func(b []byte) []byte { b[5] = 0; return b[:12] }), dnsmessage.RCodeFormatError},
		"an answer in it":      {change(func(b []byte) []byte { b[7] = 1; return b }), dnsmessage.RCodeFormatError},
		"a pointer to itself":  {append(append([]byte(nil), good[:12]...), 0xc0, 12, 0, 1, 0, 1), dnsmessage.RCodeFormatError},
		"a pointer in a label": {append(append([]byte(nil), good[:12]...), 1, 'a', 0xc0, 12, 0, 1, 0, 1), dnsmessage.RCodeFormatError},
		"a dot in a label":     {append(append([]byte(nil), good[:12]...), append([]byte("\x0da.example.com\x00"), 0, 1, 0, 1)...), dnsmessage.RCodeFormatError},
		"a name of 300 bytes":  {append(append([]byte(nil), good[:12]...), []byte(strings.Repeat("\x0aaaaaaaaaaa", 28)+"\x00\x00\x01\x00\x01")...), dnsmessage.RCodeFormatError},
		"something behind it":  {append(append([]byte(nil), good...), 0), dnsmessage.RCodeFormatError},
		"half of it":           {good[:20], dnsmessage.RCodeFormatError},
		"another class":        {change(func(b []byte) []byte { b[len(b)-1] = 3; return b }), dnsmessage.RCodeRefused},
		"2,000 bytes":          {append(append([]byte(nil), good...), make([]byte, 2000)...), 255},
		"eleven bytes":         {good[:11], 255},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			wait := patience
			if c.code == 255 {
				wait = time.Second
			}
			b, err := f.askFor(wait, "8.8.8.8:53", c.msg)
			if c.code == 255 {
				var ne net.Error
				if !errors.As(err, &ne) || !ne.Timeout() {
					t.Errorf("the answer is %x, %v", b, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if code := dnsmessage.RCode(b[3] & 0xf); code != c.code {
				t.Errorf("%v, want %v", code, c.code)
			}
		})
	}
}

// Case 27: names below a wildcard carry data to its owner, so they are counted.
func TestNamesBelowAWildcardHaveABound(t *testing.T) {
	w := newWorld()
	p := *policy(t, "*.wild.example.com:443", "a.example.com:443")
	p.Limits.Names = 3
	f := newFarm(t, w, &p)
	for i := range 5 {
		code, _ := f.resolve(fmt.Sprintf("d%d.wild.example.com.", i), dnsmessage.TypeA)
		want := dnsmessage.RCodeSuccess
		if i >= 3 {
			want = dnsmessage.RCodeNameError
		}
		if code != want {
			t.Errorf("name %d: %v, want %v", i, code, want)
		}
	}
	for _, name := range []string{"d1.wild.example.com.", "a.example.com."} { // known, or named in full
		if code, _ := f.resolve(name, dnsmessage.TypeA); code != dnsmessage.RCodeSuccess {
			t.Errorf("%s: %v", name, code)
		}
	}
	f.denied("names_exhausted")
}

func TestPacketsThatAPersonMayMissAreDenials(t *testing.T) {
	f := newFarm(t, newWorld(), policy(t, "a.example.com:443"))
	for range 3 {
		if b, err := f.askFor(time.Second, "8.8.8.8:443", []byte("QUIC")); err == nil {
			t.Fatalf("the answer is %q", b)
		}
	}
	waitFor(t, "all are dropped", func() bool { return f.cell.Stats().Wire.Dropped[link.DropUDP] == 3 })
	if d := f.cell.Stats().Denials; len(d) != 1 || d[0].Kind != event.Link || d[0].Code != "packet_udp" || d[0].Count != 3 || d[0].Reason == "" {
		t.Errorf("%+v", d)
	}
}

// Each wildcard of a policy has a number of its own, and there may be thousands: what
// one box makes the gateway remember has a bound all the same.
func TestNamesBelowAllWildcardsTogetherHaveABound(t *testing.T) {
	var list []string
	for i := range 100 {
		list = append(list, fmt.Sprintf("*.w%d.example.com:443", i))
	}
	p := policy(t, append(list, "a.example.com:443")...)
	var b budgets
	kept := 0
	for i := range 100 {
		for k := range p.Limits.Names + 1 {
			if b.name(p, hostName(fmt.Sprintf("n%d.w%d.example.com", k, i))) {
				kept++
			}
		}
	}
	if kept != maxNames || kept >= 100*p.Limits.Names {
		t.Errorf("%d names are kept, want %d", kept, maxNames)
	}
	if !b.name(p, "a.example.com") || !b.name(p, "n0.w0.example.com") {
		t.Error("a name in full, or a known one, has no room")
	}
}
