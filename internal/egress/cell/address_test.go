package cell

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/synth"
)

// Sections B and C: an address leads somewhere only if it stands for a name
// that was asked for here. Each is refused before the handshake ends.
func TestAnAddressThatNoNameStandsForLeadsNowhere(t *testing.T) {
	w := newWorld()
	var r recorder
	w.host(t, "a.example.com", "8.8.4.4", "443", r.serve)
	f := newFarm(t, w, policy(t, "a.example.com:443"))
	control := f.dialName("a.example.com", "443")
	sent := string(hello{sni: "a.example.com"}.bytes())
	_, _ = io.WriteString(control, sent)
	waitFor(t, "the control arrives", func() bool { return r.text() == sent })
	before := w.touched()
	for to, code := range map[string]string{
		"8.8.4.4:443":                      "host_not_allowed", // the true address of an allowed host (22)
		"169.254.169.254:80":               "host_not_allowed",
		"10.0.0.1:22":                      "host_not_allowed",
		"100.64.0.1:80":                    "host_not_allowed",
		"93.184.216.34:853":                "host_not_allowed", // DNS over TLS (28)
		"[2606:4700:4700::1111]:443":       "host_not_allowed",
		"[fe80::1]:80":                     "host_not_allowed",
		"[64:ff9b::a9fe:a9fe]:80":          "host_not_allowed",
		"198.18.0.1:80":                    "address_self", // the gateway (20)
		"198.18.0.1:22":                    "address_self",
		"[fd53:756e:6162:6100::1]:443":     "address_self",
		"198.18.0.3:443":                   "address_unknown", // lateral (20)
		"198.19.255.254:443":               "address_unknown", // never told
		synth.V4(4711).String() + ":443":   "address_unknown",
		"[fd53:756e:6162:6100::4711]:443":  "address_unknown",
		"[fd53:756e:6162:6100:1::500]:443": "address_unknown",
	} {
		t.Run(to, func(t *testing.T) {
			f.t = t
			if c, err := f.dial(to); err == nil {
				c.Close()
				t.Fatal("it is accepted")
			}
			a := netip.MustParseAddrPort(to)
			f.event(func(e event.Event) bool {
				return e.Decision == event.Deny && e.Code == code && e.Addr == a.Addr().String() && e.Port == a.Port()
			}, "a denial with "+code)
		})
	}
	if n := w.touched() - before; n != 0 {
		t.Errorf("the world was touched %d times", n)
	}
}

func TestAPortIsPartOfWhatIsAllowed(t *testing.T) {
	w := newWorld()
	f := newFarm(t, w, policy(t, "a.example.com:443"))
	a := f.lookup("a.example.com").String()
	for _, port := range []string{"22", "80", "853", "8443"} { // 11
		if _, err := f.dial(net.JoinHostPort(a, port)); err == nil {
			t.Errorf("port %s is accepted", port)
		}
	}
	f.denied("port_not_allowed")
	if w.touched() != 0 {
		t.Errorf("the world was touched: %v", w.asked)
	}
}

// What an allowed name resolves to is held against the table (31, 32, 34), and
// what cannot be dialled is refused before the handshake ends.
func TestAnAllowedNameIsDialledOnlyAtAnAddressThatMayBeReached(t *testing.T) {
	for _, c := range []struct {
		name  string
		addrs []string
		err   error
		code  string
		dials []string
	}{
		{"public", []string{"8.8.4.4"}, nil, "", []string{"8.8.4.4:443"}},
		{"loopback", []string{"127.0.0.1"}, nil, "address_denied", nil},
		{"private", []string{"10.1.2.3"}, nil, "address_denied", nil},
		{"metadata", []string{"169.254.169.254"}, nil, "address_denied", nil},
		{"metadata as IPv6", []string{"::ffff:169.254.169.254"}, nil, "address_denied", nil},
		{"metadata by NAT64", []string{"64:ff9b::a9fe:a9fe"}, nil, "address_denied", nil},
		{"unspecified", []string{"0.0.0.0", "::"}, nil, "address_denied", nil},
		{"our own range", []string{"198.18.0.1"}, nil, "address_denied", nil},
		{"public and metadata", []string{"169.254.169.254", "8.8.4.4"}, nil, "", []string{"8.8.4.4:443"}},
		{"public that is down, and metadata", []string{"8.8.4.5", "169.254.169.254"}, nil, "upstream_refused", []string{"8.8.4.5:443"}},
		{"nothing", nil, nil, "name_unknown", nil},
		{"no resolver", nil, errors.New("cannot resolve: the test says so"), "resolver_failed", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			var r recorder
			w.host(t, "a.example.com", "8.8.4.4", "443", r.serve)
			w.names["a.example.com"] = nil
			for _, a := range c.addrs {
				w.names["a.example.com"] = append(w.names["a.example.com"], netip.MustParseAddr(a))
			}
			w.err = c.err
			f := newFarm(t, w, policy(t, "a.example.com:443"))
			conn, err := f.dial(net.JoinHostPort(f.lookup("a.example.com").String(), "443"))
			if (err == nil) != (c.code == "") {
				t.Errorf("the box sees %v", err)
			}
			if c.code == "" {
				conn.Close()
			} else {
				f.denied(c.code)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.dials) != len(c.dials) || len(c.dials) > 0 && w.dials[0] != c.dials[0] {
				t.Errorf("dialled %v, want %v", w.dials, c.dials)
			}
		})
	}
}

func TestRawConnectionsGoWhereAnEntrySays(t *testing.T) {
	w := newWorld()
	var db, net10, other recorder
	w.host(t, "db.example.com", "10.2.0.7", "5432", db.serve)
	w.host(t, "nameless", "10.3.0.9", "6379", net10.serve)
	w.host(t, "nameless", "10.4.0.9", "6379", other.serve)
	f := newFarm(t, w, load(t, `  - { name: db, host: db.example.com, port: 5432, protocol: tcp, cidr: 10.2.0.0/24, sink: internal }
  - { name: net, cidr: 10.3.0.0/16, ports: [6379], protocol: tcp, sink: internal }
`))
	for _, c := range []struct {
		to string
		r  *recorder
	}{{net.JoinHostPort(f.lookup("db.example.com").String(), "5432"), &db}, {"10.3.0.9:6379", &net10}} {
		conn, err := f.dial(c.to)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "SSH-2.0 or anything")
		_ = conn.CloseWrite()
		waitFor(t, "the bytes arrive", func() bool { return c.r.text() == "SSH-2.0 or anything" })
	}
	for _, to := range []string{"10.4.0.9:6379", "10.3.0.9:22", "10.2.0.7:5432"} {
		if _, err := f.dial(to); err == nil {
			t.Errorf("%s is accepted", to)
		}
	}
	w.mu.Lock()
	w.names["db.example.com"] = []netip.Addr{netip.MustParseAddr("10.4.0.9")}
	w.mu.Unlock()
	if _, err := f.dial(net.JoinHostPort(f.lookup("db.example.com").String(), "5432")); err == nil {
		t.Error("an address outside of the entry's network is accepted")
	}
	f.denied("address_denied")
	if other.text() != "" {
		t.Error("it was reached")
	}
}
