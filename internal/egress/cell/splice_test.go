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
