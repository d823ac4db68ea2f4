package cell

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// hello is a client hello to be varied.
type hello struct {
	sni      string
	versions []uint16
	suites   []uint16
	more     []byte // extensions
	record   int    // bytes in a record; 0 is all
}

func vector(n int, b []byte) []byte {
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(b)))
	return append(size[4-n:], b...)
}

func extension(kind uint16, body []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, kind), vector(2, body)...)
}

func words(list []uint16) (out []byte) {
	for _, w := range list {
		out = binary.BigEndian.AppendUint16(out, w)
	}
	return out
}

func (h hello) bytes() []byte {
	if h.suites == nil {
		h.suites = []uint16{0x1301, 0xc02f}
	}
	if h.versions == nil {
		h.versions = []uint16{0x0304, 0x0303}
	}
	var ext []byte
	if h.sni != "" {
		ext = append(ext, extension(0, vector(2, append([]byte{0}, vector(2, []byte(h.sni))...)))...)
	}
	ext = append(ext, extension(43, vector(1, words(h.versions)))...)
	ext = append(ext, h.more...)
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, vector(1, nil)...)
	body = append(body, vector(2, words(h.suites))...)
	body = append(body, vector(1, []byte{0})...)
	body = append(body, vector(2, ext)...)
	msg := append([]byte{1}, vector(3, body)...)
	if h.record == 0 {
		h.record = len(msg)
	}
	var out []byte
	for len(msg) > 0 {
		n := min(h.record, len(msg))
		out = append(out, append([]byte{22, 3, 1}, vector(2, msg[:n])...)...)
		msg = msg[n:]
	}
	return out
}

// Section D of the cases: what a splice passes on. Each line that is denied is
// paired with the first, which the same upstream records.
func TestOnlyAHelloForTheNameIsSpliced(t *testing.T) {
	optional := func(t *testing.T) *rules.Policy {
		p := *policy(t, "a.example.com:443", "b.example.com:443")
		p.Hosts = append([]rules.Host(nil), p.Hosts...)
		for i := range p.Hosts {
			p.Hosts[i].SNIOptional = true
		}
		return &p
	}
	strict := func(t *testing.T) *rules.Policy { return policy(t, "a.example.com:443", "b.example.com:443") }
	for _, c := range []struct {
		name   string
		bytes  []byte
		code   string // empty: passed on
		policy func(*testing.T) *rules.Policy
	}{
		{"its own name", hello{sni: "a.example.com"}.bytes(), "", strict},
		{"its own name in capitals", hello{sni: "A.Example.COM"}.bytes(), "", strict},
		{"one byte a record", hello{sni: "a.example.com", record: 1}.bytes(), "", strict},
		{"the name of another allowed host (37)", hello{sni: "b.example.com"}.bytes(), "sni_mismatch", strict},
		{"the name of an attacker (40)", hello{sni: "evil.net"}.bytes(), "sni_mismatch", strict},
		{"an attacker's name in one byte a record", hello{sni: "evil.net", record: 1}.bytes(), "sni_mismatch", strict},
		{"a name below its own", hello{sni: "x.a.example.com"}.bytes(), "sni_mismatch", strict},
		{"its name with a dot", hello{sni: "a.example.com."}.bytes(), "sni_mismatch", strict},
		{"its name in wide letters", hello{sni: "\uff41.example.com"}.bytes(), "sni_mismatch", strict},
		{"its name with a wide dot", hello{sni: "a\u3002example.com"}.bytes(), "sni_mismatch", strict},
		{"its name with NUL", hello{sni: "a.example.com\x00.evil.net"}.bytes(), "sni_mismatch", strict},
		{"an address", hello{sni: "8.8.4.4"}.bytes(), "sni_mismatch", strict},
		{"no name (38)", hello{}.bytes(), "sni_missing", strict},
		{"no name where that is allowed", hello{}.bytes(), "", optional},
		{"another name where none is allowed", hello{sni: "b.example.com"}.bytes(), "sni_mismatch", optional},
		{"an encrypted hello (41)", hello{sni: "a.example.com", more: extension(0xfe0d, []byte{0, 1, 2})}.bytes(), "ech", strict},
		{"an encrypted hello without a name", hello{more: extension(0xfe0d, []byte{0})}.bytes(), "ech", optional},
		{"an encrypted name, as drafts had it", hello{sni: "a.example.com", more: extension(0xffce, []byte{0, 1, 2})}.bytes(), "ech", strict},
		{"an encrypted hello of draft 8", hello{sni: "a.example.com", more: extension(0xfe08, []byte{0})}.bytes(), "ech", strict},
		{"an encrypted hello of draft 7 behind others", hello{sni: "a.example.com", more: join(extension(21, make([]byte, 99)), extension(0xff02, nil))}.bytes(), "ech", strict},
		{"what stands outside of an encrypted hello", hello{sni: "a.example.com", more: extension(0xfd00, []byte{2, 0, 0})}.bytes(), "ech", strict},
		{"renegotiation that is safe, and GREASE", hello{sni: "a.example.com", more: join(extension(0xff01, []byte{0}), extension(0xfafa, nil))}.bytes(), "", strict},
		{"two names", hello{sni: "a.example.com", more: extension(0, vector(2, append([]byte{0}, vector(2, []byte("evil.net"))...)))}.bytes(), "hello_malformed", strict},
		{"only TLS 1.0 (47)", hello{sni: "a.example.com", versions: []uint16{0x0301}}.bytes(), "tls_weak", strict},
		{"only TLS 1.1 and GREASE", hello{sni: "a.example.com", versions: []uint16{0x8a8a, 0x0302}}.bytes(), "tls_weak", strict},
		{"only RC4 (47)", hello{sni: "a.example.com", suites: []uint16{0x0005}}.bytes(), "tls_weak", strict},
		{"a hello of 17 KiB (43)", hello{sni: "a.example.com", more: extension(21, make([]byte, 17<<10)), record: 1 << 14}.bytes(), "hello_malformed", strict},
		{"a hello that stops (43)", hello{sni: "a.example.com"}.bytes()[:40], "hello_timeout", strict},
		{"plain HTTP (49)", []byte("GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n"), "not_tls", strict},
		{"CONNECT (59)", []byte("CONNECT evil.net:443 HTTP/1.1\r\n\r\n"), "not_tls", strict},
		{"HTTP/2 by prior knowledge (61)", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "not_tls", strict},
		{"SSH (89)", []byte("SSH-2.0-x\r\n"), "not_tls", strict},
		{"anything", []byte{0, 1, 2, 3}, "not_tls", strict},
		{"early data", join(hello{sni: "a.example.com"}.bytes(), tlsRecord(20, 1), tlsRecord(23, 9)), "", strict},
		{"a second hello for the same name", join(hello{sni: "a.example.com"}.bytes(), tlsRecord(20, 1), hello{sni: "a.example.com"}.bytes(), tlsRecord(23, 9)), "", strict},
		{"a key exchange and what looks like a hello behind it", join(hello{sni: "a.example.com"}.bytes(), tlsRecord(22, 16, 0, 0, 0), tlsRecord(20, 1), hello{sni: "b.example.com"}.bytes()), "", strict},
		{"SSL 2", []byte{0x80, 0x2e, 1, 3, 1}, "not_tls", strict},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			var a, b recorder
			w.host(t, "a.example.com", "8.8.4.4", "443", a.serve)
			w.host(t, "b.example.com", "8.8.4.5", "443", b.serve)
			f := newFarm(t, w, c.policy(t), func(cfg *Config) {
				if cfg.Timeouts.Hello = patience; c.code == "hello_timeout" {
					cfg.Timeouts.Hello = time.Second
				}
			})
			conn := f.dialName("a.example.com", "443")
			if _, err := conn.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			if c.code == "" {
				waitFor(t, "the upstream has what was sent", func() bool { return a.text() == string(c.bytes) })
				return
			}
			f.denied(c.code)
			if !ended(conn) {
				t.Error("the connection is still open")
			}
			if got := a.text() + b.text(); got != "" {
				t.Errorf("the upstream received %q", got)
			}
		})
	}
}

// Clients of SSH, databases and mail may wait for the server to begin, and be gone
// before anybody can tell from their bytes what they speak.
func TestAClientThatSaysNothingIsToldHowRawBytesAreAllowed(t *testing.T) {
	for _, c := range []struct {
		name, code string
		leave      bool
	}{{"waits", "hello_timeout", false}, {"goes away", "hello_missing", true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			var a recorder
			w.host(t, "a.example.com", "8.8.4.4", "5432", a.serve)
			f := newFarm(t, w, policy(t, "a.example.com:5432"), func(cfg *Config) {
				if cfg.Timeouts.Hello = patience; !c.leave {
					cfg.Timeouts.Hello = 300 * time.Millisecond
				}
			})
			conn := f.dialName("a.example.com", "5432")
			if c.leave {
				if err := conn.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			if e := f.denied(c.code); e.Fix != "a.example.com:5432/tcp in place of a.example.com:5432" {
				t.Errorf("the fix is %q", e.Fix)
			}
		})
	}
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func tlsRecord(kind byte, body ...byte) []byte { return append([]byte{kind, 3, 3}, vector(2, body)...) }

// A server may ask for a second hello in the clear, and some take the name from
// that one. It is held back until it is judged, however it is cut.
func TestASecondHelloIsJudgedLikeTheFirst(t *testing.T) {
	first := hello{sni: "a.example.com"}.bytes()
	early := join(tlsRecord(23, 1, 2, 3), tlsRecord(20, 1))
	for _, c := range []struct {
		name, code string
		second     []byte
	}{
		{"another name", "sni_mismatch", hello{sni: "b.example.com"}.bytes()},
		{"another name in one byte a record", "sni_mismatch", hello{sni: "b.example.com", record: 1}.bytes()},
		{"an encrypted hello", "ech", hello{sni: "a.example.com", more: extension(0xfe0d, []byte{0})}.bytes()},
		{"no name", "sni_missing", hello{}.bytes()},
		{"another name behind an empty record", "hello_malformed", join(tlsRecord(22), hello{sni: "b.example.com"}.bytes())},
		{"no hello after all", "hello_malformed", tlsRecord(22, 1, 0, 0, 2, 9, 9)},
		{"no TLS", "hello_malformed", []byte("GET / HTTP/1.1\r\n\r\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			var a recorder
			w.host(t, "a.example.com", "8.8.4.4", "443", a.serve)
			for cut := range 3 { // at once, apart, byte by byte
				a.mu.Lock()
				a.data = nil
				a.mu.Unlock()
				f := newFarm(t, w, policy(t, "a.example.com:443"))
				conn := f.dialName("a.example.com", "443")
				all := join(first, early, c.second)
				switch cut {
				case 0:
					_, _ = conn.Write(all)
				case 1:
					_, _ = conn.Write(first)
					waitFor(t, "the first arrives", func() bool { return a.text() == string(first) })
					_, _ = conn.Write(all[len(first):])
				default:
					for i := range all {
						_, _ = conn.Write(all[i : i+1])
					}
				}
				f.denied(c.code)
				if !ended(conn) {
					t.Error("the connection is still open")
				}
				if got := a.text(); len(got) > len(first)+len(early)+5 {
					t.Errorf("the upstream got %q", got)
				}
			}
		})
	}
}

// A client that resumes a session of TLS 1.2 sends a record of the handshake that is
// ciphertext, and begins with any byte: also with that of a hello. What the server
// says tells it apart.
func TestAResumedHandshakeIsNoSecondHello(t *testing.T) {
	first, other := hello{sni: "a.example.com"}.bytes(), hello{sni: "b.example.com"}.bytes()
	finished := join(tlsRecord(20, 1), tlsRecord(22, append([]byte{1, 0xff, 0xff, 0xff}, make([]byte, 36)...)...))
	random := append([]byte{2, 0, 0, 70, 3, 3}, make([]byte, 68)...)
	retry := append([]byte{2, 0, 0, 70, 3, 3}, "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c"...)
	for _, c := range []struct {
		name   string
		answer []byte
		next   []byte
		code   string // empty: passed on
	}{
		{"a resumed handshake", tlsRecord(22, random...), finished, ""},
		{"a resumed handshake, and a hello of no length", tlsRecord(22, random...), join(tlsRecord(20, 1), tlsRecord(22, 1, 0, 0, 0)), ""},
		{"a resumed handshake in the form of half a hello", tlsRecord(22, random...), join(tlsRecord(20, 1), tlsRecord(22, other[5:60]...), tlsRecord(23, 7)), ""},
		{"another hello where none is asked for", tlsRecord(22, random...), join(tlsRecord(20, 1), other), "sni_mismatch"},
		{"another hello where one is asked for", tlsRecord(22, append(retry, make([]byte, 36)...)...), other, "sni_mismatch"},
		{"the same hello where one is asked for", tlsRecord(22, append(retry, make([]byte, 36)...)...), first, ""},
		{"another hello, and an answer in one byte a record", join(tlsRecord(22, 2), tlsRecord(22, random[1:]...)), other, "sni_mismatch"},
		{"another hello, and an answer that is none", []byte(strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 4)), other, "sni_mismatch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			var a recorder
			w.host(t, "a.example.com", "8.8.4.4", "443", func(conn net.Conn) {
				_, _ = io.ReadFull(conn, make([]byte, len(first)))
				_, _ = conn.Write(c.answer[:20])
				_, _ = conn.Write(c.answer[20:])
				a.serve(conn)
			})
			f := newFarm(t, w, policy(t, "a.example.com:443"))
			conn := f.dialName("a.example.com", "443")
			_, _ = conn.Write(first)
			if _, err := io.ReadFull(conn, make([]byte, len(c.answer))); err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write(c.next)
			if c.code == "" {
				waitFor(t, "the upstream has all", func() bool { return a.text() == string(c.next) })
				return
			}
			f.denied(c.code)
			if got := a.text(); len(got) > 11 { // the heads of records
				t.Errorf("the upstream got %q", got)
			}
		})
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen that %s", what)
		}
	}
}
