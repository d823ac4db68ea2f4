package dial

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// zone is a DNS server that a test writes answers for, over UDP and TCP.
type zone struct {
	mu     sync.Mutex
	asked  int
	over   map[string]int // transports
	answer func(q dnsmessage.Question, m *dnsmessage.Message, network string)
}

func serve(t *testing.T, answer func(dnsmessage.Question, *dnsmessage.Message, string)) (*zone, netip.AddrPort) {
	t.Helper()
	z := &zone{answer: answer, over: map[string]int{}}
	var u net.PacketConn
	var l net.Listener
	for range 20 { // a port that is free in both
		var err error
		if u, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if l, err = net.Listen("tcp", u.LocalAddr().String()); err == nil {
			break
		}
		u.Close()
	}
	if l == nil {
		t.Fatal("no port is free")
	}
	t.Cleanup(func() { u.Close(); l.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, b := range z.reply(buf[:n], "udp") {
				_, _ = u.WriteTo(b, from)
			}
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var size [2]byte
			_, _ = io.ReadFull(c, size[:])
			q := make([]byte, binary.BigEndian.Uint16(size[:]))
			_, _ = io.ReadFull(c, q)
			for _, b := range z.reply(q, "tcp") {
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
			}
			c.Close()
		}
	}()
	return z, netip.MustParseAddrPort(u.LocalAddr().String())
}

func (z *zone) reply(q []byte, network string) [][]byte {
	var m dnsmessage.Message
	if m.Unpack(q) != nil || len(m.Questions) != 1 {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	z.over[network]++
	m.Response, m.Additionals = true, nil
	z.answer(m.Questions[0], &m, network)
	if m.ID == 0 { // the test says: nothing
		return nil
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return [][]byte{b}
}

func record(name string, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: 30}, Body: body}
}

func a(name string, ip ...byte) dnsmessage.Resource {
	return record(name, &dnsmessage.AResource{A: [4]byte(ip)})
}

func TestAResolverBelievesOnlyAnAnswerToItsQuestion(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(dnsmessage.Question, *dnsmessage.Message, string)
		want   string // addresses, or an error in brackets
		tcp    bool
	}{
		{"addresses", func(q dnsmessage.Question, m *dnsmessage.Message, _ string) {
			if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, a("a.example.com.", 8, 8, 4, 4), a("a.example.com.", 10, 0, 0, 1))
			} else {
				m.Answers = append(m.Answers, record("a.example.com.", &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("2001:4860::1").As16()}))
			}
		}, "8.8.4.4 10.0.0.1 2001:4860::1", false},
		{"aliases (32)", func(q dnsmessage.Question, m *dnsmessage.Message, _ string) {
			m.Answers = append(m.Answers, record("A.Example.com.", &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("B.internal.")}))
			if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, a("b.internal.", 10, 0, 0, 7))
			}
		}, "10.0.0.7", false},
		{"aliases in a circle", func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) {
			m.Answers = append(m.Answers, record("a.example.com.", &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("b.example.com.")}),
				record("b.example.com.", &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("a.example.com.")}))
		}, "", false},
		{"an address of another name", func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) {
			m.Answers = append(m.Answers, a("evil.net.", 8, 8, 4, 4))
		}, "", false},
		{"no such name", func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) {
			m.RCode = dnsmessage.RCodeNameError
		}, "", false},
		{"too large for UDP", func(q dnsmessage.Question, m *dnsmessage.Message, network string) {
			if network == "udp" {
				m.Truncated = true
			} else if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, a("a.example.com.", 8, 8, 4, 4))
			}
		}, "8.8.4.4", true},
		{"the server fails (34)", func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) {
			m.RCode = dnsmessage.RCodeServerFailure
		}, "(RCodeServerFailure)", false},
		{"an answer to another number", func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) {
			m.ID ^= 1
			m.Answers = append(m.Answers, a("a.example.com.", 8, 8, 4, 4))
		}, "(timeout)", false},
		{"an answer to another question", func(q dnsmessage.Question, m *dnsmessage.Message, _ string) {
			m.Questions[0].Name = dnsmessage.MustNewName("b.example.com.")
			m.Answers = append(m.Answers, a("a.example.com.", 8, 8, 4, 4))
		}, "(timeout)", false},
		{"a question", func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) {
			m.Response = false
			m.Answers = append(m.Answers, a("a.example.com.", 8, 8, 4, 4))
		}, "(timeout)", false},
		{"silence", func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) { m.ID = 0 }, "(timeout)", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			z, at := serve(t, c.answer)
			patience := time.Minute
			if c.want == "(timeout)" { // and no answer comes
				patience = time.Second
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			addrs, err := NewServers([]netip.AddrPort{at}).Resolve(ctx, "a.example.com")
			if word, ok := strings.CutPrefix(c.want, "("); ok {
				if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(word, ")")) && !strings.Contains(err.Error(), "deadline") {
					t.Errorf("%v, %v", addrs, err)
				}
				return
			}
			var got []string
			for _, a := range addrs {
				got = append(got, a.String())
			}
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("%v, %v, want %s", got, err, c.want)
			}
			z.mu.Lock()
			defer z.mu.Unlock()
			if (z.over["tcp"] > 0) != c.tcp {
				t.Errorf("asked over %v", z.over)
			}
		})
	}
}

// Who owns a name may be who wrote the box's program: what its answers are kept in is
// bounded, for all boxes together.
func TestAnAnswerOfThousandsOfAddressesIsKeptInPart(t *testing.T) {
	_, at := serve(t, func(q dnsmessage.Question, m *dnsmessage.Message, network string) {
		if m.Truncated = network == "udp"; m.Truncated {
			return
		}
		for i := range 2000 {
			if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, a("a.example.com.", 8, 8, byte(i>>8), byte(i)))
			} else {
				m.Answers = append(m.Answers, record("a.example.com.", &dnsmessage.AAAAResource{AAAA: [16]byte{0x20, 1, 15: byte(i)}}))
			}
		}
	})
	s := NewServers([]netip.AddrPort{at})
	got, err := s.Resolve(context.Background(), "a.example.com")
	if err != nil || len(got) != 2*keepAddrs || cap(s.kept["a.example.com"].addrs) > 4*keepAddrs {
		t.Errorf("%d addresses, %v", len(got), err)
	}
}

func TestTheNextServerIsAskedWhenOneFailsAndAnswersAreKept(t *testing.T) {
	bad, badAt := serve(t, func(_ dnsmessage.Question, m *dnsmessage.Message, _ string) { m.RCode = dnsmessage.RCodeRefused })
	good, goodAt := serve(t, func(q dnsmessage.Question, m *dnsmessage.Message, _ string) {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, a("a.example.com.", 8, 8, 4, 4))
		}
	})
	s := NewServers([]netip.AddrPort{badAt, goodAt})
	for range 3 {
		addrs, err := s.Resolve(context.Background(), "a.example.com")
		if err != nil || len(addrs) != 1 {
			t.Fatalf("%v, %v", addrs, err)
		}
	}
	bad.mu.Lock()
	defer bad.mu.Unlock()
	good.mu.Lock()
	defer good.mu.Unlock()
	if bad.asked != 2 || good.asked != 2 { // once for each version
		t.Errorf("asked %d and %d times", bad.asked, good.asked)
	}
	if _, err := NewServers(nil).Resolve(context.Background(), "a.example.com"); err == nil {
		t.Error("no server knows an address")
	}
}
