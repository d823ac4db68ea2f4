package cell

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
)

// Case 137, for each mode: a connection that the new policy does not allow ends
// within a second, one that it allows goes on.
func TestAChangeOfThePolicyJudgesOpenConnections(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "443", echo)
	w.host(t, "b.example.com", "8.8.4.5", "443", echo)
	w.host(t, "raw.example.com", "8.8.4.6", "5432", echo)
	w.host(t, "web.example.com", "8.8.4.7", "80", func(c net.Conn) { // an answer that does not end
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	f := newFarm(t, w, load(t, `  - { host: a.example.com, tls: splice }
  - { host: b.example.com, tls: splice }
  - { host: raw.example.com, port: 5432, protocol: tcp }
  - { host: web.example.com, port: 80, rules: [ { methods: [GET], paths: ["/a", "/b"] } ] }
`))
	open := func(name, port, first string) net.Conn {
		c := f.dialName(name, port)
		_, _ = io.WriteString(c, first)
		if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
			t.Fatalf("%s does not answer: %v", name, err)
		}
		return c
	}
	request := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: web.example.com\r\n\r\n" }
	a := open("a.example.com", "443", string(hello{sni: "a.example.com"}.bytes()))
	b := open("b.example.com", "443", string(hello{sni: "b.example.com"}.bytes()))
	raw := open("raw.example.com", "5432", "0123456789")
	webA, webB := open("web.example.com", "80", request("/a")), open("web.example.com", "80", request("/b"))

	begin := time.Now()
	f.cell.Update(load(t, `  - { host: a.example.com, tls: splice }
  - { host: raw.example.com, port: 5432, tls: splice }
  - { host: web.example.com, port: 80, rules: [ { methods: [GET], paths: ["/a"] } ] }
`), 2, f.dialer)
	for name, c := range map[string]net.Conn{"a host that is gone": b, "a mode that is gone": raw, "a path that is gone": webB} {
		if !ended(c) {
			t.Errorf("%s: it goes on", name)
		}
	}
	// It takes milliseconds; the bound leaves room for a host that has none, and is far
	// below the minute after which a quiet connection ends by itself.
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
	_, _ = io.WriteString(a, "and on it goes")
	if _, err := io.ReadFull(a, make([]byte, 14)); err != nil {
		t.Errorf("what is allowed ended: %v", err)
	}
	_ = webA.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := io.ReadAll(webA); err == nil || !err.(net.Error).Timeout() {
		t.Errorf("a path that is allowed ended: %v", err)
	}
	e := f.event(func(e event.Event) bool { return e.Kind == event.Close && e.Code == "policy_changed" }, "the end")
	if e.Generation != 2 || f.cell.Stats().Generation != 2 {
		t.Errorf("the generation is %d", e.Generation)
	}
	f.cell.Update(policy(t), 3, f.dialer) // 136: an empty list allows nothing
	if !ended(a) {
		t.Error("an empty policy lets a connection go on")
	}
}

// What a request may still send is said by the rule that is in force, and not by the
// one that it began under.
func TestAChangeOfThePolicyChangesTheBudgetOfARequest(t *testing.T) {
	w := newWorld()
	var got recorder
	w.host(t, "web.example.com", "8.8.4.7", "80", got.serve)
	const entry = `  - { host: web.example.com, port: 80, rules: [ { name: up, methods: [POST], tx_bytes: 100000 } ] }
`
	f := newFarm(t, w, load(t, entry))
	c := f.dialName("web.example.com", "80")
	_, _ = io.WriteString(c, "POST /up HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 90000\r\n\r\n"+strings.Repeat("x", 3000))
	waitFor(t, "the begin of the body came", func() bool { return strings.HasSuffix(got.text(), "xxx") })
	f.cell.Update(load(t, strings.Replace(entry, "100000", "5000", 1)), 2, f.dialer)
	_, _ = io.WriteString(c, strings.Repeat("y", 1000))
	waitFor(t, "what is within the new budget came", func() bool { return strings.Count(got.text(), "y") == 1000 })
	_, _ = io.WriteString(c, strings.Repeat("z", 4000))
	f.denied("bytes_exhausted")
	if !ended(c) || strings.Contains(got.text(), "z") {
		t.Errorf("%d bytes more came", strings.Count(got.text(), "z"))
	}
}

// The address that a name had when it was dialled must still be allowed.
func TestAChangeOfThePolicyJudgesAddresses(t *testing.T) {
	w := newWorld()
	w.host(t, "db.example.com", "10.2.0.7", "5432", echo)
	const entry = "  - { name: db, host: db.example.com, port: 5432, protocol: tcp, cidr: 10.2.0.0/16, sink: internal }\n"
	for text, ends := range map[string]bool{
		entry: false,
		entry + "  - { cidr: 10.2.0.0/24, decide: deny }\n":                  true,
		strings.Replace(entry, "10.2.0.0/16", "10.2.9.0/24", 1):              true,
		strings.Replace(entry, ", cidr: 10.2.0.0/16, sink: internal", "", 1): true,
	} {
		f := newFarm(t, w, load(t, entry))
		c := f.dialName("db.example.com", "5432")
		_, _ = c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		f.cell.Update(load(t, text), 2, f.dialer)
		_, _ = c.Write([]byte("y"))
		var ne net.Error
		if _, err := io.ReadFull(c, make([]byte, 1)); (err != nil) != ends || errors.As(err, &ne) && ne.Timeout() {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A dial that was begun under one policy ends with it.
func TestAChangeOfThePolicyEndsADialThatIsUnderWay(t *testing.T) {
	w := newWorld()
	dialling := make(chan struct{})
	f := newFarm(t, w, policy(t, "a.example.com:443"), func(c *Config) { c.Dialer.Resolver = stuck{dialling} })
	go func() { _, _ = f.dial(net.JoinHostPort(f.lookup("a.example.com").String(), "443")) }()
	<-dialling
	f.cell.Update(policy(t), 2, f.dialer)
	waitFor(t, "the connection is gone", func() bool { return f.cell.Stats().Open == 0 })
	f.denied("policy_changed")
}

type stuck struct{ asked chan struct{} }

func (stuck) NAT64(context.Context) ([]netip.Prefix, error) { return nil, nil }

func (s stuck) Resolve(ctx context.Context, _ hostName) ([]addr, error) {
	close(s.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// Whom a policy asks for addresses changes with it: what is open goes on, and the next
// connection goes where the new ones say.
func TestAChangeOfTheResolversIsForTheNextConnection(t *testing.T) {
	w, other := newWorld(), newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	w.host(t, "a.example.com", "8.8.4.5", "5432", echo) // the second answer of two
	p := load(t, "  - { host: a.example.com, port: 5432, protocol: tcp }\n")
	w.names["a.example.com"] = []addr{netip.MustParseAddr("8.8.4.4")}
	other.names["a.example.com"] = []addr{netip.MustParseAddr("8.8.4.5")}
	f := newFarm(t, w, p)
	says := func(c net.Conn, what string) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, what)
		if _, err := io.ReadFull(c, make([]byte, len(what))); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	before := f.dialName("a.example.com", "5432")
	says(before, "before")
	f.cell.Update(p, 2, &dial.Dialer{Resolver: other, Map: w.place})
	says(before, "goes on")
	says(f.dialName("a.example.com", "5432"), "after")
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.dials, " "); got != "8.8.4.4:5432 8.8.4.5:5432" || len(other.asked) != 1 || len(w.asked) != 1 {
		t.Errorf("dialled %s; asked %v, then %v", got, w.asked, other.asked)
	}
}
