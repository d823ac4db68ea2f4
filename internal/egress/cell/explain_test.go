package cell

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

const explained = `
  - name: plain
    host: plain.example.com
    port: 80
    rules:
      - { name: read, methods: [GET, HEAD], paths: ["/public/**"] }
      - { name: post, methods: [POST], paths: ["/public/up"] }
      - { name: secret, paths: ["/public/secret/**"], decide: deny }
  - { name: alt, host: plain.example.com, port: 8080, protocol: http }
  - { name: odd, host: plain.example.com, port: 8443, protocol: http, rules: [ { methods: ["*"] }, { paths: [/], decide: deny } ] }
  - { name: tls, host: tls.example.com, tls: splice }
  - { name: wild, host: "*.wild.example.com", ports: [443, 8443], tls: splice }
  - { name: bad, host: bad.wild.example.com, decide: deny }
  - { name: part, host: part.wild.example.com, port: 443, decide: deny }
  - { name: wide, host: "*.wide.example.com", port: 80 }
  - { name: raw, host: raw.example.com, port: 5432, protocol: tcp }
  - { name: never, cidr: 10.3.0.128/25, decide: deny }
  - { name: net, cidr: 10.3.0.0/24, port: 6379, protocol: tcp, sink: internal }
`

// answered is what the gateway really does with a question, as a box sees it: with
// the code of the denial.
func (f *farm) answered(method, url string, up *recorder) (allowed bool, code string) {
	f.t.Helper()
	scheme, rest, _ := strings.Cut(url, "://")
	authority, target := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, target = rest[:i], rest[i:]
	}
	target, _, _ = strings.Cut(target, "#")
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	host := authority
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		host, port = authority[:i], authority[i+1:]
	}
	f.mu.Lock()
	f.events = nil
	f.mu.Unlock()
	deny := func() (bool, string) {
		e := f.event(func(e event.Event) bool { return e.Decision == event.Deny }, "a denial of "+method+" "+url)
		return false, e.Code
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		b, err := f.ask("8.8.8.8:53", rawQuery(host))
		if err != nil {
			f.t.Fatalf("%s: %v", url, err)
		}
		rcode, addrs := unpackRaw(f.t, b)
		if rcode != dnsmessage.RCodeSuccess || len(addrs) != 1 {
			return deny()
		}
		at = addrs[0]
	}
	c, err := f.dial(net.JoinHostPort(at.Unmap().String(), port))
	if err != nil {
		return deny()
	}
	defer c.Close()
	up.clear()
	answer := make(chan string, 1)
	switch scheme {
	case "http":
		_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, target, authority)
		go func() {
			b := make([]byte, len("HTTP/1.1 200 "))
			if n, _ := io.ReadFull(c, b); n > 0 { // raw bytes get no answer
				answer <- string(b)
			}
		}()
	case "https":
		sni, _ := hostname.Parse(host) // as clients send it; of an address none
		_, _ = c.Write(hello{sni: string(sni)}.bytes())
	case "tcp":
		_, _ = io.WriteString(c, "any\n\n")
	}
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(2 * time.Millisecond) {
		select {
		case b := <-answer:
			if b != "HTTP/1.1 200 " {
				return deny()
			}
			return true, string(rules.Allowed)
		default:
		}
		if up.text() != "" {
			return true, string(rules.Allowed)
		}
		f.mu.Lock()
		for _, e := range f.events {
			if e.Decision == event.Deny {
				f.mu.Unlock()
				return false, e.Code
			}
		}
		f.mu.Unlock()
	}
	f.t.Fatalf("%s %s: neither allowed nor denied", method, url)
	return false, ""
}

func (r *recorder) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = nil
}

// rawQuery asks for a name of any bytes.
func rawQuery(name string) []byte {
	b := []byte{0, 77, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	b = append(b, 0)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, 1), 1)
}

func unpackRaw(t testing.TB, b []byte) (dnsmessage.RCode, []netip.Addr) {
	if len(b) < 12 || b[3]&0xf != 0 || b[7] == 0 {
		if len(b) < 12 {
			t.Fatalf("answer %x", b)
		}
		return dnsmessage.RCode(b[3] & 0xf), nil
	}
	return 0, []netip.Addr{netip.AddrFrom4([4]byte(b[len(b)-4:]))}
}

// What `sunaba policy explain` says is what the gateway does: each question of a small
// world is asked of both.
func TestAnExplanationIsWhatTheGatewayDoes(t *testing.T) {
	w := newWorld()
	var up recorder
	var web origin
	for _, name := range []string{"plain.example.com", "tls.example.com", "raw.example.com", "a.wild.example.com", "part.wild.example.com", "a_b.wild.example.com", "xn--bcher-kva.wild.example.com", "a.wide.example.com"} {
		for _, port := range []string{"80", "8080"} {
			w.host(t, name, "8.8.4.4", port, web.serve)
		}
		for _, port := range []string{"443", "5432"} {
			w.host(t, name, "8.8.4.4", port, up.serve)
		}
		if name == "plain.example.com" {
			w.names[name] = []netip.Addr{netip.MustParseAddr("8.8.4.5")}
			w.host(t, name, "8.8.4.5", "80", web.serve)
			w.host(t, name, "8.8.4.5", "8080", web.serve)
			w.host(t, name, "8.8.4.5", "8443", web.serve)
		}
	}
	w.host(t, "a.wild.example.com", "8.8.4.4", "8443", up.serve)
	w.host(t, "nameless", "10.3.0.9", "6379", up.serve)
	p := load(t, explained)
	long := strings.Repeat("d", 8<<10)
	hosts := []string{"plain.example.com", "PLAIN.Example.com", "plain.example.com.", "x.plain.example.com", "plain.example.com.evil.net", "ｐlain.example.com", "plаin.example.com", "tls.example.com",
		"raw.example.com", "wild.example.com", "a.wild.example.com", "bad.wild.example.com", "part.wild.example.com", "evil-wild.example.com", "bücher.wild.example.com", "xn--bcher-kva.wild.example.com", "xn--a.wild.example.com",
		"a b.wild.example.com", "-a.wild.example.com", "a_b.wild.example.com", "a.wide.example.com", "1.2.3", "0x7f.1", "①②⑦.0.0.1", "2130706433", "localhost", "metadata.google.internal", "evil.net",
		"10.3.0.9", "10.3.0.200", "10.4.0.9", "169.254.169.254", "198.18.0.1", "198.18.7.7", "8.8.4.4", "[fd00::1]", "[::ffff:10.3.0.9]"}
	targets := []string{"", "/", "/public", "/public/x", "/public/up", "/public/../secret", "/public/%2e%2e/x", "/public/secret/x", "/public/SECRET", "/public/secret;x/y", "//public//x", "/public/%2fx", "/public/%c3%a9", "/public/é", "/public/%zz",
		"/public/x?y=1", "/public/x?y=é", "/public/x?y=a b", "?y", "/public/x#y", "/public/x?" + long, "/public/" + long, "/public/x?%00", "/public/..;/x", "/public/%2525"}
	tried, allowed := 0, 0
	for _, scheme := range []string{"http", "https", "tcp"} {
		for _, host := range hosts {
			f := newFarm(t, w, p)
			for _, port := range []string{"", ":80", ":443", ":8080", ":8443", ":5432", ":6379"} {
				methods, paths := []string{"GET"}, []string{""}
				switch {
				case scheme == "tcp" && port == "":
					continue
				case scheme == "http" && host == "plain.example.com" && port != "" && port < ":86": // those of plain HTTP
					methods, paths = []string{"GET", "POST", "TRACE", "get", "CONNECT"}, targets
					f = newFarm(t, w, p) // one tells only so much in a second
				}
				for _, m := range methods {
					for _, target := range paths {
						if m == "CONNECT" && target != "" {
							continue
						}
						url := scheme + "://" + host + port + target
						q, err := rules.ParseQuestion(m, url)
						if err != nil {
							t.Fatal(err)
						}
						want := p.Explain(q)
						got, code := f.answered(m, url, &up)
						tried++
						if got {
							allowed++
						}
						switch code { // of what only the gateway knows
						case "address_self", "address_unknown":
							code = string(rules.NotListed)
						case string(rules.URLCharacter):
							if scheme == "tcp" { // bytes that are no HTTP
								code = string(rules.NotPlain)
							}
						}
						if got != want.Allow || code != string(want.Code) {
							t.Errorf("%s %.100s: the gateway says %v (%s), the explanation %v (%s)", m, url, got, code, want.Allow, want.Code)
						}
					}
				}
			}
		}
	}
	t.Logf("%d questions, %d of them allowed", tried, allowed)
	if allowed < 50 {
		t.Error("hardly anything was allowed: the farm is not what the policy says")
	}
}
