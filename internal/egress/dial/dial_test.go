package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

type fixed []netip.Addr

func (f fixed) Resolve(context.Context, hostname.Name) ([]netip.Addr, error) { return f, nil }

func (fixed) NAT64(context.Context) ([]netip.Prefix, error) { return nil, nil }

func entry(t *testing.T) *rules.Host {
	t.Helper()
	p, err := rules.FromAllowlist([]string{"a.example.com:443"})
	if err != nil {
		t.Fatal(err)
	}
	h, v := p.Host("a.example.com", 443)
	if h == nil {
		t.Fatal(v.Reason)
	}
	return h
}

func TestOnlyAnAddressThatPassedIsDialled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		name  string
		addrs fixed
		entry *rules.Host
		code  Code
		at    string
	}{
		{"a public address", fixed{netip.MustParseAddr("8.8.4.4")}, entry(t), "", "8.8.4.4:443"},
		{"version 4 first", fixed{netip.MustParseAddr("2001:4860::1"), netip.MustParseAddr("8.8.4.4")}, entry(t), "", "8.8.4.4:443"},
		{"IPv4 in IPv6 is IPv4", fixed{netip.MustParseAddr("::ffff:8.8.4.4")}, entry(t), "", "8.8.4.4:443"},
		{"loopback in IPv6", fixed{netip.MustParseAddr("::ffff:127.0.0.1")}, entry(t), AddressDenied, ""},
		{"a zone", fixed{netip.MustParseAddr("fe80::1%lo")}, entry(t), AddressDenied, ""},
		{"no entry", fixed{netip.MustParseAddr("8.8.4.4")}, nil, AddressDenied, ""},
		{"no address", nil, entry(t), NameUnknown, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			mapped := 0
			d := &Dialer{Resolver: c.addrs, Map: func(netip.AddrPort) netip.AddrPort {
				mapped++
				return netip.MustParseAddrPort(l.Addr().String())
			}}
			conn, at, err := d.Dial(context.Background(), Target{Name: "a.example.com", Port: 443, Entry: c.entry})
			if c.code != "" {
				var e *Error
				if !errors.As(err, &e) || e.Code != c.code || mapped != 0 {
					t.Errorf("%v after %d dials, want %s", err, mapped, c.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			if at.String() != c.at {
				t.Errorf("dialled %v, want %s", at, c.at)
			}
		})
	}
}

// The socket's hook refuses what was not checked, whoever put it there.
func TestTheSocketsHookComparesOnceMore(t *testing.T) {
	d := &Dialer{}
	good := netip.MustParseAddrPort("8.8.4.4:443")
	for _, c := range []struct {
		checked netip.AddrPort
		address string
		ok      bool
	}{
		{good, "8.8.4.4:443", true},
		{good, "8.8.4.4:22", false},
		{good, "127.0.0.1:443", false},
		{good, "a.example.com:443", false},
		{netip.MustParseAddrPort("169.254.169.254:443"), "169.254.169.254:443", false},
	} {
		if err := d.veto(Target{Entry: entry(t)}, c.checked, c.checked, c.address); (err == nil) != c.ok {
			t.Errorf("%v, %s: %v", c.checked, c.address, err)
		}
	}
}

func TestAnUpstreamThatIsNotThereSaysHow(t *testing.T) {
	// A port that was free a moment ago may be another process's by now; this one is nobody's.
	d := &Dialer{Resolver: fixed{netip.MustParseAddr("8.8.4.4"), netip.MustParseAddr("8.8.4.5")}, Map: func(netip.AddrPort) netip.AddrPort {
		return netip.MustParseAddrPort("127.0.0.1:1")
	}}
	if _, _, err := d.Dial(context.Background(), Target{Name: "a.example.com", Port: 443, Entry: entry(t)}); CodeOf(err) != UpstreamRefused {
		t.Errorf("nobody listens: %v", err)
	}
	d.Resolver, d.Timeout = hanging{}, 50*time.Millisecond
	if _, _, err := d.Dial(context.Background(), Target{Name: "a.example.com", Port: 443, Entry: entry(t)}); CodeOf(err) != ResolverFailed {
		t.Errorf("the resolver hangs: %v", err)
	}
}

type hanging struct{}

func (hanging) NAT64(context.Context) ([]netip.Prefix, error) { return nil, nil }

func (hanging) Resolve(ctx context.Context, _ hostname.Name) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
