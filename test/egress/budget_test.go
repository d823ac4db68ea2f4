package egress

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

const budgetPolicy = `
version: 1
limits: { conns: 24, names: 5, tx_bytes: 40000, rx_bytes: 60000 }
hosts:
  - { name: echo, host: raw.example.com, port: 5432, protocol: tcp, tx_bytes: 10000 }
  - { name: back, host: ssh.example.com, port: 22, protocol: tcp, rx_bytes: 3000 }
  - { name: slow, host: open.example.com, port: 80, rate: 6/h }
  - { name: wild, host: "*.wild.example.com", tls: splice }
  - { name: all, host: api.example.com, port: 8080, protocol: http }
  - name: plain
    host: api.example.com
    port: 80
    rules:
      - { name: few, paths: ["/few"], rate: 3/h }
      - { name: up, methods: [POST], paths: ["/up"], tx_bytes: 5000 }
      - { name: rest, methods: [GET], paths: ["/rest/**"] }
`

// spend are what a case's lines call beside the helpers.
const spendHelpers = `
def pour(host, port, size, piece, wait=100):
    "sends until it cannot, and says how much came back"
    s = K(host, port, wait); got = 0
    try:
        for i in range(0, size, piece):
            s.sendall(b"z" * min(piece, size - i)); got += len(s.recv(65536))
        while got < size:
            b = s.recv(65536)
            if not b: break
            got += len(b)
    except OSError: pass
    s.close(); return got
`

// What a policy says a box may use up is what it gets, to the byte, the connection and
// the name, however it divides it: by connections, by entries, by pieces, by letters.
func TestBudgetsAreExact(t *testing.T) {
	f := theWorld(t)
	twice(t, func(t *testing.T, u harness.User) {
		s := newSubject(t, u, budgetPolicy)
		try := func(expr string) string { t.Helper(); return s.try(expr) }
		load := func(text string) { // definitions
			if got := try(fmt.Sprintf("exec(%q, globals())", text)); got != "None" {
				t.Fatalf("%s", got)
			}
		}
		load(spendHelpers)
		settle(t, f)
		// cameAll waits for so many bytes, and then for some that are too many.
		cameAll := func(at string, least int) (n int) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); ; {
				enough := n >= least || time.Now().After(deadline)
				time.Sleep(100 * time.Millisecond)
				for _, s := range f.take(t) {
					if s.Kind == "data" && strings.HasSuffix(s.At, at) {
						n += len(s.What)
					}
				}
				if enough {
					return n
				}
			}
		}
		came := func(at string) int { t.Helper(); return cameAll(at, 0) }
		// An entry's bytes, by pieces that fit exactly, and then by other connections.
		if got, n := try(`pour("raw.example.com", 5432, 10000, 1000)`), came(":5432"); got != "10000" || n != 10000 {
			t.Errorf("all that may be sent: %s, and %d bytes came", got, n)
		}
		for _, more := range []string{`pour("raw.example.com", 5432, 1, 1)`, `pour("raw.example.com", 5432, 5000, 5000)`, `[pour("raw.example.com", 5432, 1, 1) for _ in range(5)]`} {
			if got, n := try(more), came(":5432"); n != 0 || regexp.MustCompile(`[1-9]`).MatchString(got) {
				t.Errorf("one byte more, %s: %s, and %d bytes came", more, got, n)
			}
		}
		// Bytes that come back.
		if got := try(`pour("ssh.example.com", 22, 9000, 500)`); len(got) != 4 || got > "3000" {
			t.Errorf("of 3000 bytes that may be received came %s", got)
		}
		came(":22")
		// A rule's requests and bytes, whichever connection they are on.
		if got := try(`[G("/few") for _ in range(6)]`); strings.Count(got, "200 OK") != 3 || strings.Count(got, "429") != 3 {
			t.Errorf("three requests an hour: %s", got)
		}
		if n := came(":80"); n == 0 {
			t.Error("the first ones did not come")
		}
		if got := try(`[G("/FEW"), G("/few?x"), G("/./few"), G("/%66ew"), G("//few")]`); strings.Contains(got, "200 OK") {
			t.Errorf("the same path by other letters: %s", got)
		}
		if n := came(":80"); n != 0 {
			t.Errorf("%d bytes came of requests that are too many", n)
		}
		if got := try(`[G("/up", "POST", "Content-Length: 2000\r\nConnection: close\r\n", body="b"*2000, all=True)[:12] for _ in range(4)]`); !strings.HasPrefix(got, "['HTTP/1.1 200', 'HTTP/1.1 200'") { // each is read to its end, when its body has gone; the third may be answered before that is refused
			t.Errorf("5000 bytes by requests of 2000: %s", got)
		}
		if n := cameAll(":80", 4000); n > 5000 || n < 4000 { // answers come before bodies have
			t.Errorf("%d bytes came under a rule of 5000", n)
		}
		if got := try(`G("/rest/x")`); got != works {
			t.Errorf("another rule: %s", got)
		}
		// Connections of an entry with a rate.
		if got := try(`[C("open.example.com", 80) for _ in range(9)].count("connected")`); got != "6" {
			t.Errorf("six connections an hour: %s", got)
		}
		// Names below a wildcard, by any letters and servers, are five.
		if got := try(`[D(n + ".wild.example.com") for n in "a b c d e f g h".split()].count("rcode 0, 1 answers")`); got != "5" {
			t.Errorf("names: %s", got)
		}
		if got := try(`[D("A.WILD.example.com"), D("e.wild.example.com", 28, "8.8.8.8"), D("f.wild.example.com", tcp=True), D("x.a.wild.example.com"), D("F.wild.example.com")]`); got != "['rcode 0, 1 answers', 'rcode 0, 1 answers', 'rcode 3, 0 answers', 'rcode 3, 0 answers', 'rcode 3, 0 answers']" {
			t.Errorf("names that were counted, and others: %s", got)
		}
		// Open connections, of questions, of hosts, of none.
		if got := try(`crowd([20, 4, 0], (20, GW, 53), (20, "api.example.com", 8080), (5, "8.8.8.8", 53))`); got != "[20, 4, 0]" {
			t.Errorf("24 connections: %s", got)
		}
		if got := try(`crowd([24, 0], (24, "api.example.com", 8080), (1, GW, 53))`); got != "[24, 0]" {
			t.Errorf("after they were closed: %s", got)
		}
		if got := try(`(crowd([24], (24, "api.example.com", 8080)), crowd([12], (12, "api.example.com", 8080)), free())[:2]`); got != "([24], [12])" { // and has room for the twelve below
			t.Errorf("and once more: %s", got)
		}
		// The box's own bytes, of all entries together.
		settle(t, f)
		got := try(`[G("/x", host="api.example.com:8080", port=8080, more="X-A: " + "y" * 4000 + "\r\n")[:12] for _ in range(12)]`)
		if n := strings.Count(got, "200"); n < 3 || n > 7 {
			t.Errorf("the rest of 40000 bytes by heads of 4000: %s", got)
		}
		came("")
		if got, n := try(`pour("api.example.com", 8080, 4000, 1000, 3)`), came(":8080"); got != "0" || n != 0 {
			t.Errorf("beyond: %s, and %d bytes came", got, n)
		}
		if got := try(`G("/rest/" + "x" * 3000)`); got == works {
			t.Error("a request goes beyond the box's bytes")
		}
		if n := came(":80"); n > 3000 {
			t.Errorf("%d bytes came", n)
		}
	})
}
