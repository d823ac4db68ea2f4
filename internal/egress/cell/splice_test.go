package cell

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sunaba-dev/sunaba/internal/egress/event"
)

func TestAnAllowedNameIsReachedOverTLSFromEndToEnd(t *testing.T) {
	cert, pool := certificate(t, "api.example.com")
	w := newWorld()
	w.host(t, "api.example.com", "8.8.4.4", "443", func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		defer s.Close()
		b := make([]byte, 5)
		if _, err := io.ReadFull(s, b); err == nil {
			_, _ = s.Write(append([]byte("you said "), b...))
		}
	})
	f := newFarm(t, w, policy(t, "api.example.com:443"))
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		code, addrs := f.resolve("API.example.com.", kind)
		if code != dnsmessage.RCodeSuccess || len(addrs) != 1 {
			t.Fatalf("%v: %v, %v", kind, code, addrs)
		}
		c, err := f.dial(net.JoinHostPort(addrs[0].String(), "443"))
		if err != nil {
			t.Fatal(err)
		}
		s := tls.Client(c, &tls.Config{ServerName: "api.example.com", RootCAs: pool})
		if _, err := s.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(s)
		if err != nil || string(text) != "you said hello" {
			t.Fatalf("%q, %v", text, err)
		}
		s.Close()
	}
	e := f.event(func(e event.Event) bool { return e.Kind == event.Connect && e.Decision == event.Allow }, "the connection")
	if e.SNI != "api.example.com" || e.Addr != "8.8.4.4" || e.Mode != "splice" {
		t.Errorf("the event says %+v", e)
	}
	f.event(func(e event.Event) bool { return e.Kind == event.Close && e.TX > 0 && e.RX > 0 }, "the end")
}

func TestADeniedNameDoesNotExistAndCausesNoPacket(t *testing.T) {
	w := newWorld()
	var r recorder
	w.host(t, "evil.example.com", "8.8.4.4", "443", r.serve)
	f := newFarm(t, w, policy(t, "api.example.com:443"))
	if code, addrs := f.resolve("evil.example.com.", dnsmessage.TypeA); code != dnsmessage.RCodeNameError || len(addrs) != 0 {
		t.Errorf("the answer is %v, %v", code, addrs)
	}
	if e := f.denied("host_not_allowed"); e.Fix == "" || e.Name != "evil.example.com" {
		t.Errorf("the event says %+v", e)
	}
	if n := w.touched(); n != 0 {
		t.Errorf("the world was touched %d times", n)
	}
	if d := f.cell.Stats().Denials; len(d) != 1 || d[0].Count != 1 {
		t.Errorf("denials: %+v", d)
	}
}

// What real clients do beyond a simple handshake passes: versions, a second
// hello, resumption, and bytes in both directions at once.
func TestHandshakesOfEveryKindPass(t *testing.T) {
	cert, pool := certificate(t, "a.example.com")
	for name, c := range map[string]struct{ server, client *tls.Config }{
		"TLS 1.3":              {},
		"TLS 1.2":              {client: &tls.Config{MaxVersion: tls.VersionTLS12}},
		"TLS 1.2 without GCM":  {client: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256}}},
		"a second hello":       {server: &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP521}}, client: &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP521}}},
		"a client certificate": {server: &tls.Config{ClientAuth: tls.RequireAnyClientCert}, client: &tls.Config{Certificates: []tls.Certificate{cert}}},
		"a client certificate in TLS 1.2": {server: &tls.Config{ClientAuth: tls.RequireAnyClientCert},
			client: &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			server := orEmpty(c.server)
			server.Certificates = []tls.Certificate{cert}
			w.host(t, "a.example.com", "8.8.4.4", "443", func(c net.Conn) {
				s := tls.Server(c, server)
				_, _ = io.Copy(s, s)
				s.Close()
			})
			f := newFarm(t, w, policy(t, "a.example.com:443"))
			client := orEmpty(c.client)
			client.ServerName, client.RootCAs, client.ClientSessionCache = "a.example.com", pool, tls.NewLRUClientSessionCache(4)
			resumed := false
			for range 2 {
				s := tls.Client(f.dialName("a.example.com", "443"), client)
				const size = 4 << 20
				go func() {
					_, _ = s.Write(make([]byte, size))
					_ = s.CloseWrite()
				}()
				if n, err := io.Copy(io.Discard, s); n != size || err != nil {
					t.Fatalf("%d bytes, %v; denials %+v", n, err, f.cell.Stats().Denials)
				}
				resumed = s.ConnectionState().DidResume
				s.Close()
			}
			if !resumed {
				t.Error("the second connection did not resume the first")
			}
		})
	}
}

func orEmpty(c *tls.Config) *tls.Config {
	if c == nil {
		return &tls.Config{}
	}
	return c.Clone()
}
