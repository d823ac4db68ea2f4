package dnswire

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func ask(name string, kind dnsmessage.Type) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	var opt dnsmessage.ResourceHeader
	_ = opt.SetEDNS0(1232, dnsmessage.RCodeSuccess, false)
	m.Additionals = []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func TestAnswersAreWhatAClientReads(t *testing.T) {
	q, _, ok := Parse(ask("A.Example.com.", dnsmessage.TypeAAAA))
	if !ok || q.Name != "A.Example.com" || q.Type != TypeAAAA || !q.IN() {
		t.Fatalf("%+v, %v", q, ok)
	}
	for name, c := range map[string]struct {
		b       []byte
		code    dnsmessage.RCode
		answers int
	}{
		"an address": {q.Address(netip.MustParseAddr("fd53::7")), 0, 1},
		"no data":    {q.NoData(), 0, 0},
		"no name":    {q.NXDomain(), dnsmessage.RCodeNameError, 0},
		"refused":    {q.Refused(), dnsmessage.RCodeRefused, 0},
	} {
		var m dnsmessage.Message
		if err := m.Unpack(c.b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m.ID != 4711 || !m.Response || !m.RecursionDesired || m.RCode != c.code || len(m.Answers) != c.answers || len(m.Questions) != 1 || m.Questions[0].Name.String() != "A.Example.com." {
			t.Errorf("%s: %+v", name, m)
		}
		if c.answers == 1 {
			a := m.Answers[0]
			if netip.AddrFrom16(a.Body.(*dnsmessage.AAAAResource).AAAA) != netip.MustParseAddr("fd53::7") || a.Header.TTL != TTL || a.Header.Name != m.Questions[0].Name {
				t.Errorf("%+v", a)
			}
		}
	}
}

// What is accepted here is one question to another reader, too, and the same;
// every answer can be read.
func FuzzQuestion(f *testing.F) {
	f.Add(ask("a.example.com.", dnsmessage.TypeA))
	f.Add(ask(".", dnsmessage.TypeNS))
	f.Add(append(ask("a.", dnsmessage.TypeA)[:12], 0xc0, 12, 0, 1, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, answer, ok := Parse(b)
		var m dnsmessage.Message
		if !ok {
			if answer != nil {
				if err := m.Unpack(answer); err != nil || m.RCode == 0 || !m.Response {
					t.Errorf("answer %x: %v", answer, err)
				}
			}
			return
		}
		if err := m.Unpack(b); err != nil {
			t.Fatalf("another reader refuses it: %v", err)
		}
		if m.Response || m.OpCode != 0 || len(m.Questions) != 1 || len(m.Answers)+len(m.Authorities) != 0 {
			t.Fatalf("another reader reads %+v", m)
		}
		o := m.Questions[0]
		if strings.TrimSuffix(o.Name.String(), ".") != q.Name || uint16(o.Type) != q.Type || uint16(o.Class) != q.Class {
			t.Errorf("%q %d %d, another reader reads %q %d %d", q.Name, q.Type, q.Class, o.Name.String(), o.Type, o.Class)
		}
		for _, a := range [][]byte{q.NXDomain(), q.NoData(), q.Refused()} {
			if err := m.Unpack(a); err != nil || m.Questions[0] != o {
				t.Errorf("answer %x: %v", a, err)
			}
		}
		if q.Type == TypeA {
			if err := m.Unpack(q.Address(netip.AddrFrom4([4]byte{198, 18, 1, 1}))); err != nil || len(m.Answers) != 1 {
				t.Errorf("an address: %v", err)
			}
		}
	})
}
