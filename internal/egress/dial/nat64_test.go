package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// translating is a network whose resolver makes up IPv6 addresses.
type translating struct {
	fixed
	prefixes []netip.Prefix
	err      error
}

func (t translating) NAT64(context.Context) ([]netip.Prefix, error) { return t.prefixes, t.err }

// Case B 17, for any prefix: what an IPv6 address stands for is judged, by the policy's
// own denials, too.
func TestAnAddressOfNAT64IsJudgedAsWhatItStandsFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := rules.Load("p", []byte("version: 1\nhosts:\n  - { host: a.example.com, tls: splice }\n  - { cidr: 93.184.0.0/16, decide: deny }\n"))
	if err != nil {
		t.Fatal(err)
	}
	entry, _ := p.Host("a.example.com", 443)
	own := []netip.Prefix{netip.MustParsePrefix("2a00:64:64::/96")}
	well := []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}
	addrs := func(all ...string) (f fixed) {
		for _, a := range all {
			f = append(f, netip.MustParseAddr(a))
		}
		return f
	}
	for _, c := range []struct {
		name string
		net  translating
		at   string // what is dialled, or the error's code
		says string
	}{
		{"metadata in a prefix of the network's own", translating{fixed: addrs("2a00:64:64::a9fe:a9fe"), prefixes: own}, "address_denied", "it stands for 169.254.169.254 (NAT64)"},
		{"a private one", translating{fixed: addrs("2a00:64:64::a00:1"), prefixes: own}, "address_denied", "it stands for 10.0.0.1 (NAT64)"},
		{"loopback in the well-known prefix", translating{fixed: addrs("64:ff9b::7f00:1"), prefixes: well}, "address_denied", "it stands for 127.0.0.1 (NAT64)"},
		{"one that the policy denies by number", translating{fixed: addrs("2a00:64:64::5db8:d70e"), prefixes: own}, "address_denied", "is denied by the entry hosts[1]"},
		{"a public one", translating{fixed: addrs("2a00:64:64::808:404"), prefixes: own}, "[2a00:64:64::808:404]:443", ""},
		{"a public one in the well-known prefix", translating{fixed: addrs("64:ff9b::808:404"), prefixes: well}, "[64:ff9b::808:404]:443", ""},
		{"the well-known prefix where nobody translates", translating{fixed: addrs("64:ff9b::808:404")}, "address_denied", "NAT64"},
		{"the same bytes where nobody translates: the control", translating{fixed: addrs("2a00:64:64::a9fe:a9fe")}, "[2a00:64:64::a9fe:a9fe]:443", ""},
		{"nobody knows, and there is an IPv4 address", translating{fixed: addrs("2a00:64:64::a9fe:a9fe", "8.8.4.4"), err: errors.New("refused")}, "8.8.4.4:443", ""},
		{"nobody knows", translating{fixed: addrs("2a00:64:64::808:404"), err: errors.New("refused")}, "resolver_failed", "cannot tell what the IPv6 addresses"},
		{"nobody knows, and nobody has to", translating{fixed: addrs("8.8.4.4", "::ffff:8.8.4.5"), err: errors.New("refused")}, "8.8.4.4:443", ""},
	} {
		d := &Dialer{Resolver: c.net, Map: func(netip.AddrPort) netip.AddrPort { return netip.MustParseAddrPort(l.Addr().String()) }}
		conn, at, err := d.Dial(context.Background(), Target{Name: "a.example.com", Port: 443, Entry: entry})
		got := at.String()
		if err != nil {
			got = string(CodeOf(err))
		} else {
			conn.Close()
		}
		if got != c.at || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.at)
		}
	}
}

func TestTheResolverSaysHowANetworkTranslates(t *testing.T) {
	var asked []string
	z, at := serve(t, func(q dnsmessage.Question, m *dnsmessage.Message, _ string) {
		asked = append(asked, q.Name.String()+" "+q.Type.String())
		m.Answers = append(m.Answers, record("ipv4only.arpa.", &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("2a00:64:64::c000:aa").As16()}),
			record("ipv4only.arpa.", &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("2a00:64:64::c000:ab").As16()}))
	})
	s := NewServers([]netip.AddrPort{at})
	for range 3 { // one question for all
		p, err := s.NAT64(context.Background())
		if err != nil || len(p) == 0 || p[0].String() != "2a00:64:64::/96" {
			t.Fatalf("%v, %v", p, err)
		}
	}
	z.mu.Lock()
	if len(asked) != 1 || asked[0] != "ipv4only.arpa. TypeAAAA" {
		t.Errorf("asked %v", asked)
	}
	z.mu.Unlock()
	for code, fails := range map[dnsmessage.RCode]bool{dnsmessage.RCodeSuccess: false, dnsmessage.RCodeNameError: false, dnsmessage.RCodeServerFailure: true, dnsmessage.RCodeRefused: true} {
		n, at := serve(t, func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) { m.RCode = code })
		s := NewServers([]netip.AddrPort{at})
		for range 2 { // a failure is remembered, too, if not for long
			if p, err := s.NAT64(context.Background()); (err != nil) != fails || len(p) != 0 {
				t.Errorf("%v: %v, %v", code, p, err)
			}
		}
		n.mu.Lock()
		if n.asked > 2 { // two tries of one question
			t.Errorf("%v: asked %d times", code, n.asked)
		}
		n.mu.Unlock()
	}
}
