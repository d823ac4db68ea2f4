package cell

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// origin is an HTTP/1 server that records every byte and answers each request
// by hand.
type origin struct {
	recorder
	answer string // default: 200 with "ok"
}

func (o *origin) serve(c net.Conn) {
	o.mu.Lock()
	o.conns++
	answer := o.answer
	o.mu.Unlock()
	if answer == "" {
		answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	}
	in := bufio.NewReader(io.TeeReader(c, writer(func(b []byte) {
		o.mu.Lock()
		o.data = append(o.data, b...)
		o.mu.Unlock()
	})))
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
		if !strings.Contains(answer, "\r\nContent-Length:") && !strings.Contains(answer, "chunked") {
			return
		}
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func load(t testing.TB, hosts string) *rules.Policy {
	t.Helper()
	p, err := rules.Load("policy.yaml", []byte("version: 1\ndefault: deny\nhosts:\n"+hosts))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const webPolicy = `  - name: web
    host: a.example.com
    port: 80
    rules:
      - { name: read, methods: [GET, HEAD], paths: ["/public/**"] }
      - { name: say, methods: [POST, PUT], paths: ["/say"] }
  - { name: other, host: b.example.com, port: 80 }
`

func get(path string, more ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: a.example.com\r\n" + strings.Join(more, "") + "\r\n"
}

// Section E of the cases, without TLS: what a request must be to reach the
// upstream, and in which bytes it does. Lines without a code are the controls:
// the same upstream records them.
func TestARequestIsJudgedAndWrittenAnew(t *testing.T) {
	const host = "\r\nHost: a.example.com\r\n"
	for _, c := range []struct {
		name   string
		send   string
		status int    // of the last answer
		code   string // of the denial; empty: allowed
		got    string // what the upstream got, in all
		to     string // empty: a.example.com
	}{
		{name: "a request", send: get("/public/x?q=1"), status: 200, got: "GET /public/x?q=1 HTTP/1.1" + host + "\r\n"},
		{name: "its host with a port and capitals", send: "GET /public/x HTTP/1.1\r\nHOST: A.example.com.:80\r\n\r\n", status: 200, got: "GET /public/x HTTP/1.1" + host + "\r\n"},
		{name: "two hosts (51)", send: "GET /public/ HTTP/1.1" + host + "Host: evil.net\r\n\r\n", status: 400, code: "http_malformed"},
		{name: "twice the same host", send: "GET /public/ HTTP/1.1" + host + host[2:] + "\r\n", status: 400, code: "http_malformed"},
		{name: "Host with a space (51)", send: "GET /public/ HTTP/1.1\r\nHost : a.example.com\r\n\r\n", status: 400, code: "http_malformed"},
		{name: "no host", send: "GET /public/ HTTP/1.1\r\n\r\n", status: 400, code: "http_malformed"},
		{name: "an attacker's host", send: "GET /public/ HTTP/1.1\r\nHost: evil.net\r\n\r\n", status: 421, code: "host_mismatch"},
		{name: "another allowed host", send: "GET / HTTP/1.1\r\nHost: b.example.com\r\n\r\n", status: 421, code: "host_mismatch"},
		{name: "another port", send: "GET /public/ HTTP/1.1\r\nHost: a.example.com:8080\r\n\r\n", status: 421, code: "host_mismatch"},
		{name: "a list of hosts (7)", send: "GET /public/ HTTP/1.1\r\nHost: a.example.com,evil.net\r\n\r\n", status: 421, code: "host_mismatch"},
		{name: "an encoded dot (7)", send: "GET /public/ HTTP/1.1\r\nHost: a%2eexample.com\r\n\r\n", status: 421, code: "host_mismatch"},
		{name: "absolute form (52)", send: "GET http://a.example.com/public/x HTTP/1.1\r\nHost: evil.net\r\n\r\n", status: 200, got: "GET /public/x HTTP/1.1" + host + "\r\n"},
		{name: "absolute form for an attacker (52)", send: "GET http://evil.net/public/x HTTP/1.1" + host + "\r\n", status: 421, code: "host_mismatch"},
		{name: "absolute form with a user", send: "GET http://a.example.com@evil.net/public/x HTTP/1.1" + host + "\r\n", status: 421, code: "host_mismatch"},
		{name: "absolute form of https (52)", send: "GET https://a.example.com/public/x HTTP/1.1" + host + "\r\n", status: 400, code: "http_malformed"},
		{name: "an asterisk", send: "OPTIONS * HTTP/1.1" + host + "\r\n", status: 400, code: "http_malformed"},
		{name: "both lengths (53)", send: "POST /say HTTP/1.1" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 400, code: "http_framing"},
		{name: "two lengths", send: "POST /say HTTP/1.1" + host + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", status: 400, code: "http_malformed"},
		{name: "a list of lengths", send: "POST /say HTTP/1.1" + host + "Content-Length: 4, 4\r\n\r\nabcd", status: 400, code: "http_framing"},
		{name: "a length with a sign", send: "POST /say HTTP/1.1" + host + "Content-Length: +4\r\n\r\nabcd", status: 400, code: "http_framing"},
		{name: "a length beyond counting (125)", send: "POST /say HTTP/1.1" + host + "Content-Length: 99999999999999999999\r\n\r\nabcd", status: 400, code: "http_framing"},
		{name: "a length with an underscore", send: "POST /say HTTP/1.1" + host + "Content_Length: 4\r\n\r\n", status: 400, code: "http_malformed"},
		{name: "xchunked (55)", send: "POST /say HTTP/1.1" + host + "Transfer-Encoding: xchunked\r\n\r\n", status: 501, code: "http_framing"},
		{name: "identity, chunked (55)", send: "POST /say HTTP/1.1" + host + "Transfer-Encoding: identity, chunked\r\n\r\n", status: 501, code: "http_framing"},
		{name: "two encodings (55)", send: "POST /say HTTP/1.1" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", status: 501, code: "http_framing"},
		{name: "chunks in HTTP/1.0", send: "POST /say HTTP/1.0" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 400, code: "http_framing"},
		{name: "a body", send: "POST /say HTTP/1.1" + host + "Content-Length: 4\r\n\r\nabcd", status: 200, got: "POST /say HTTP/1.1" + host + "Content-Length: 4\r\nConnection: close\r\n\r\nabcd"},
		{name: "a body of no bytes", send: "POST /say HTTP/1.1" + host + "Content-Length: 0\r\n\r\n", status: 200, got: "POST /say HTTP/1.1" + host + "Content-Length: 0\r\n\r\n"},
		{name: "a body where it only asks (65)", send: get("/public/x", "Content-Length: 1\r\n") + "a", status: 403, code: "body_not_allowed"},
		{name: "chunks where it only asks (65)", send: "GET /public/x HTTP/1.1" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 403, code: "body_not_allowed"},
		{name: "a method in the query (64)", send: "POST /say?_method=DELETE HTTP/1.1" + host + "Content-Length: 0\r\n\r\n", status: 403, code: "method_override"},
		{name: "a method in the query, encoded (64)", send: "POST /say?a=b&%5FMeth%6fd%5b%5d=DELETE HTTP/1.1" + host + "\r\n", status: 403, code: "method_override"},
		{name: "a method in the query behind a semicolon (64)", send: "POST /say?a=b;X-HTTP-Method-Override=DELETE HTTP/1.1" + host + "\r\n", status: 403, code: "method_override"},
		{name: "a word in the query that is no method", send: get("/public/x?method=_method&a_method=b"), status: 200, got: get("/public/x?method=_method&a_method=b")},
		{name: "a length with a dot", send: "POST /say HTTP/1.1" + host + "Content.Length: 4\r\n\r\n", status: 400, code: "http_malformed"},
		{name: "an encoding with a plus", send: "POST /say HTTP/1.1" + host + "Transfer+Encoding: chunked\r\n\r\n", status: 400, code: "http_malformed"},
		{name: "chunks with extensions and trailers (65)", send: "POST /say HTTP/1.1" + host + "Transfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n4;a=b\r\nabcd\r\n0\r\nX: y\r\n\r\n", status: 200, got: "POST /say HTTP/1.1" + host + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"},
		{name: "bare LF (56)", send: "GET /public/x HTTP/1.1\nHost: a.example.com\n\n", status: 400, code: "http_malformed"},
		{name: "bare CR", send: "GET /public/x HTTP/1.1\r\nHost: a.example.com\r\nX: a\rb\r\n\r\n", status: 400, code: "http_malformed"},
		{name: "a folded line (56)", send: "GET /public/x HTTP/1.1\r\nHost: a.example.com\r\nX: a\r\n b\r\n\r\n", status: 400, code: "http_malformed"},
		{name: "NUL in a value", send: get("/public/x", "X: a\x00b\r\n"), status: 400, code: "http_malformed"},
		{name: "two spaces", send: "GET  /public/x HTTP/1.1" + host + "\r\n", status: 400, code: "http_malformed"},
		{name: "a second request for an attacker (57)", send: get("/public/x") + "GET /public/y HTTP/1.1\r\nHost: evil.net\r\n\r\n", status: 421, code: "host_mismatch", got: get("/public/x")},
		{name: "a second request on a denied path (57)", send: get("/public/x") + get("/secret"), status: 403, code: "path_not_allowed", got: get("/public/x")},
		{name: "three in a row", send: get("/public/x") + get("/public/y") + get("/public/z"), status: 200, got: get("/public/x") + get("/public/y") + get("/public/z")},
		{name: "a path out of the rule (58)", send: get("/public/../secret"), status: 403, code: "path_not_allowed"},
		{name: "encoded dots (58)", send: get("/public/%2e%2e/secret"), status: 403, code: "path_not_allowed"},
		{name: "an encoded slash (58)", send: get("/public/..%2fsecret"), status: 400, code: "path_malformed"},
		{name: "NUL in a path (58)", send: get("/public/%00"), status: 400, code: "path_malformed"},
		{name: "a backslash (58)", send: get(`/public/..\secret`), status: 400, code: "path_malformed"},
		{name: "the canonical path goes on (58)", send: get("/x/..//public/./%78"), status: 200, got: get("/public/x")},
		{name: "CONNECT (59)", send: "CONNECT evil.net:443 HTTP/1.1\r\nHost: evil.net:443\r\n\r\n", status: 403, code: "method_forbidden"},
		{name: "CONNECT for its own host", send: "CONNECT a.example.com:22 HTTP/1.1" + host + "\r\n", status: 403, code: "method_forbidden"},
		{name: "an upgrade to h2c (61)", send: get("/public/x", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"), status: 403, code: "upgrade"},
		{name: "an upgrade to WebSocket", send: get("/public/x", "Connection: Upgrade\r\nUpgrade: websocket\r\n"), status: 403, code: "upgrade"},
		{name: "HTTP/2 by prior knowledge (61)", send: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 505, code: "http_version"},
		{name: "fields for one hop (63)", send: get("/public/x", "Connection: X-Hop, keep-alive\r\nX-Hop: 1\r\nX-Kept: 2\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Authorization: x\r\n"), status: 200, got: get("/public/x", "X-Kept: 2\r\n")},
		{name: "Connection names Host", send: get("/public/x", "Connection: Host\r\n"), status: 400, code: "http_malformed"},
		{name: "a method in lower case (64)", send: "get /public/x HTTP/1.1" + host + "\r\n", status: 403, code: "method_forbidden"},
		{name: "an unknown method (64)", send: "FOO /public/x HTTP/1.1" + host + "\r\n", status: 403, code: "method_forbidden"},
		{name: "TRACE (64)", send: "TRACE /public/x HTTP/1.1" + host + "\r\n", status: 403, code: "method_forbidden"},
		{name: "a method that the rule has not (93)", send: "POST /public/x HTTP/1.1" + host + "Content-Length: 1\r\n\r\na", status: 403, code: "method_not_allowed"},
		{name: "fields that override (64)", send: get("/public/x", "X-HTTP-Method-Override: DELETE\r\nX_Http_Method_Override: DELETE\r\nX-Original-URL: /secret\r\nX-Forwarded-Host: evil.net\r\nX.HTTP.Method.Override: DELETE\r\nX!Rewrite!URL: /secret\r\nX-Forwarded-Method: DELETE\r\nX-Forwarded-Path: /secret\r\n"), status: 200, got: get("/public/x")},
		{name: "an entry without rules, and fields that override the host", to: "b.example.com", send: "DELETE /x HTTP/1.1\r\nHost: b.example.com\r\nX-Forwarded-Host: evil.net\r\nForwarded: host=evil.net\r\nX_Forwarded_Host: evil.net\r\nX-HTTP-Method-Override: PUT\r\n\r\n", status: 200, got: "DELETE /x HTTP/1.1\r\nHost: b.example.com\r\nX-HTTP-Method-Override: PUT\r\n\r\n"},
		{name: "a URL of 9 KiB (122)", send: get("/public/" + strings.Repeat("a", 9<<10)), status: 414, code: "url_too_long"},
		{name: "a URL of 100 KiB (122)", send: get("/public/" + strings.Repeat("a", 100<<10)), status: 414, code: "url_too_long"},
		{name: "a URL of 9 KiB in its query (100)", send: get("/public/x?" + strings.Repeat("a", 9<<10)), status: 414, code: "url_too_long"},
		{name: "a head of 64 KiB (122)", send: get("/public/x", "X: "+strings.Repeat("a", 64<<10)+"\r\n"), status: 431, code: "header_too_large"},
		{name: "200 fields (122)", send: get("/public/x", strings.Repeat("X: a\r\n", 200)), status: 431, code: "header_too_large"},
		{name: "1,000 cookies (122)", send: get("/public/x", strings.Repeat("Cookie: a=b\r\n", 1000)), status: 431, code: "header_too_large"},
		{name: "a head that stops (121)", send: "GET /public/x HTTP/1.1\r\nHost: a.exa", status: 408, code: "head_timeout"},
		{name: "HTTP/1.0", send: "GET /public/x HTTP/1.0" + host + "\r\n", status: 200, got: get("/public/x")},
		{name: "100-continue (65)", send: "PUT /say HTTP/1.1" + host + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na", status: 200, got: "PUT /say HTTP/1.1" + host + "Content-Length: 1\r\nConnection: close\r\n\r\na"},
		{name: "another expectation", send: get("/public/x", "Expect: tea\r\n"), status: 417, code: "http_expect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			var a, b origin
			w.host(t, "a.example.com", "8.8.4.4", "80", a.serve)
			w.host(t, "b.example.com", "8.8.4.5", "80", b.serve)
			f := newFarm(t, w, load(t, webPolicy), func(cfg *Config) {
				if cfg.Timeouts.Head = patience; c.code == "head_timeout" {
					cfg.Timeouts.Head = time.Second
				}
			})
			conn, right, wrong := f.dialName(cmp.Or(c.to, "a.example.com"), "80"), &a, &b
			if c.to == "b.example.com" {
				right, wrong = wrong, right
			}
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			status, body := lastAnswer(t, conn, strings.Count(c.send, " HTTP/1.1\r\n"))
			if status != c.status {
				t.Errorf("status %d, want %d: %s", status, c.status, body)
			}
			if got := right.text(); got != c.got {
				t.Errorf("the upstream got %q, want %q", got, c.got)
			}
			if got := wrong.text(); got != "" {
				t.Errorf("another upstream got %q", got)
			}
			if c.code == "" {
				f.event(func(e event.Event) bool { return e.Kind == event.HTTP && e.Decision == event.Allow && e.Status == 200 }, "the request")
				return
			}
			if e := f.denied(c.code); e.Kind != event.HTTP || e.Status != c.status {
				t.Errorf("the event says %+v", e)
			}
			if !strings.Contains(body, "reason: ") && !strings.HasPrefix(c.send, "HEAD") {
				t.Errorf("the answer does not say why: %q", body)
			}
			if c.got == "" && w.touched() != 0 {
				t.Errorf("a denied request touched the world: %v %v", w.asked, w.dials)
			}
		})
	}
}

// What the gateway met outside is the operator's to see: its errors have addresses
// of the host's network in them.
func TestABoxIsNotToldOfTheHostsNetwork(t *testing.T) {
	for _, c := range []struct {
		name, code string
		err        error
		addr       string
	}{
		{"a resolver that refuses", "resolver_failed", errors.New("cannot resolve: read udp 192.0.2.7:33361->192.0.2.53:53: connection refused"), ""},
		{"a private address", "address_denied", nil, "10.1.2.3"},
		{"a host that is down", "upstream_refused", nil, "8.8.4.4"},
		{"no address", "name_unknown", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.err = c.err
			if c.addr != "" {
				w.names["a.example.com"] = []netip.Addr{netip.MustParseAddr(c.addr)}
			}
			f := newFarm(t, w, load(t, webPolicy))
			conn := f.dialName("a.example.com", "80")
			if _, err := io.WriteString(conn, "GET /public/x HTTP/1.1\r\nHost: a.example.com\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_, body := lastAnswer(t, conn, 1)
			if !strings.Contains(body, "("+c.code+")") {
				t.Errorf("the box is not told which code: %q", body)
			}
			for _, hidden := range []string{"192.0.2", c.addr, "127.0.0.1", "->"} {
				if hidden != "" && strings.Contains(body, hidden) {
					t.Errorf("the box is told of %s: %q", hidden, body)
				}
			}
			if e := f.denied(c.code); c.err != nil && !strings.Contains(e.Reason, "192.0.2.53") {
				t.Errorf("the operator is not told why: %+v", e)
			}
		})
	}
}

// lastAnswer reads up to n final answers and returns the last.
func lastAnswer(t *testing.T, c net.Conn, n int) (status int, body string) {
	t.Helper()
	in := bufio.NewReader(c)
	for i := 0; i < max(n, 1); {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			if i > 0 {
				return status, body
			}
			t.Fatalf("no answer: %v", err)
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatalf("half an answer: %v", err)
		}
		if r.StatusCode >= 200 {
			status, body = r.StatusCode, string(b)
			i++
		}
	}
	return status, body
}

func TestARefusalNamesTheRuleAndTheLineThatWouldAllowIt(t *testing.T) {
	w := newWorld()
	f := newFarm(t, w, load(t, webPolicy))
	c := f.dialName("a.example.com", "80")
	_, _ = io.WriteString(c, "POST /public/x?token=secret HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
	_, body := lastAnswer(t, c, 1)
	for _, want := range []string{"rule: web", "method_not_allowed", "to allow it", "methods: [POST]", "http://a.example.com:80/public/x"} {
		if !strings.Contains(body, want) {
			t.Errorf("the answer lacks %q: %s", want, body)
		}
	}
	if e := f.denied("method_not_allowed"); strings.Contains(fmt.Sprint(e)+body, "secret") {
		t.Errorf("a query was told: %+v %s", e, body)
	}
	if d := f.cell.Stats().Denials; len(d) != 1 || d[0].Fix == "" {
		t.Errorf("denials %+v", d)
	}
}

// Section H of the cases, as far as paths and names can tell: an allowed host is
// not all of that host.
func TestAnAllowedHostIsAllowedForWhatItsRulesSay(t *testing.T) {
	const hosts = `  - { name: store, host: ci-artifacts.store.example.com, port: 80, rules: [ { methods: [GET, PUT], paths: ["/builds/**"] } ] }
  - name: code
    host: code.example.com
    port: 80
    rules:
      - { name: read, methods: [GET], paths: ["/repos/acme/**", "/login/**"] }
      - { name: no-device, methods: ["*"], paths: ["/login/device/**", "/gists/**"], decide: deny }
`
	for _, c := range []struct {
		host, line string
		status     int
	}{
		{"ci-artifacts.store.example.com", "PUT /builds/1", 200},
		{"ci-artifacts.store.example.com", "PUT /attacker-bucket/1", 403}, // 95
		{"ci-artifacts.store.example.com", "PUT /builds/../attacker-bucket/1", 403},
		{"code.example.com", "GET /repos/acme/app", 200},
		{"code.example.com", "POST /gists", 403}, // 93
		{"code.example.com", "POST /repos/acme/app/issues", 403},
		{"code.example.com", "GET /repos/evil/app", 403},
		{"code.example.com", "GET /redirect?to=http://evil.net/", 403}, // 97
		{"code.example.com", "GET /login/oauth", 200},
		{"code.example.com", "POST /login/device/code", 403}, // 98
		{"code.example.com", "GET /login/DEVICE/code", 403},
		{"code.example.com", "GET /login/device;x/code", 403},
	} {
		w := newWorld()
		var o origin
		w.host(t, c.host, "8.8.4.4", "80", o.serve)
		f := newFarm(t, w, load(t, hosts))
		if code, _ := f.resolve("attacker.store.example.com.", dnsmessage.TypeA); code != dnsmessage.RCodeNameError {
			t.Errorf("another bucket: %v", code)
		}
		conn := f.dialName(c.host, "80")
		body := ""
		if !strings.HasPrefix(c.line, "GET") {
			body = "x"
		}
		_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", c.line, c.host, len(body), body)
		status, answer := lastAnswer(t, conn, 1)
		if status != c.status || (o.text() != "") != (c.status == 200) {
			t.Errorf("%s: %d %s; the upstream got %q", c.line, status, answer, o.text())
		}
	}
}

// What an upstream answers, and what of it the box sees.
func TestAnAnswerIsReadStrictlyToo(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		status       int
		body         string
		lacks        string
	}{
		{"an answer", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n\r\nok", 200, "ok", ""},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, "ok", ""},
		{"until the end", "HTTP/1.0 200 OK\r\n\r\nok", 200, "ok", ""},
		{"an interim answer", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", ""},
		{"Alt-Svc (80)", "HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":443\"\r\nContent-Length: 2\r\n\r\nok", 200, "ok", "Alt-Svc"},
		{"what led to SPDY", "HTTP/1.1 200 OK\r\nAlternate-Protocol: 443:quic\r\nContent-Length: 2\r\n\r\nok", 200, "ok", "Alternate"},
		{"Alt-Svc in trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nAlt-Svc: h3=\":443\"\r\n\r\n", 200, "ok", "Alt-Svc"},
		{"two lengths that are equal", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", 502, "upstream_malformed", ""},
		{"a folded line", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok", 502, "upstream_malformed", ""},
		{"a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok", 502, "upstream_malformed", ""},
		{"chunks that are not alone", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 502, "upstream_malformed", ""},
		{"HTTP/2", "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 502, "upstream_malformed", ""},
		{"an unsolicited 101 (62)", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nContent-Length: 0", 502, "upstream_malformed", ""},
		{"both lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 502, "upstream_malformed", ""},
		{"no HTTP", "SSH-2.0-x\r\n\r\n", 502, "upstream_malformed", ""},
		{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 502, "upstream_malformed", ""},
		{"endless hints", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100), 502, "upstream_malformed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			a := origin{answer: c.answer}
			w.host(t, "a.example.com", "8.8.4.4", "80", a.serve)
			f := newFarm(t, w, load(t, webPolicy))
			conn := f.dialName("a.example.com", "80")
			_, _ = io.WriteString(conn, get("/public/x"))
			var all []byte
			in := bufio.NewReader(io.TeeReader(conn, writer(func(b []byte) { all = append(all, b...) })))
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != c.status || !strings.Contains(string(body), c.body) {
				t.Errorf("%d %q, %v", r.StatusCode, body, err)
			}
			if c.lacks != "" && strings.Contains(string(all), c.lacks) {
				t.Errorf("the box sees %q", all)
			}
		})
	}
}

func TestAHalfAnswerDoesNotLookWhole(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "80", func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok")
	})
	f := newFarm(t, w, load(t, webPolicy))
	conn := f.dialName("a.example.com", "80")
	_, _ = io.WriteString(conn, get("/public/x"))
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r.Body); err == nil {
		t.Errorf("%q looks whole", b)
	}
}

func TestARequestIsRepeatedOnlyIfNothingCanHaveComeOfIt(t *testing.T) {
	for _, c := range []struct {
		second string
		status int
	}{{get("/public/2"), 200}, {"POST /say HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 1\r\n\r\na", 502}} {
		w := newWorld()
		var mu sync.Mutex
		n := 0
		w.host(t, "a.example.com", "8.8.4.4", "80", func(c net.Conn) { // it closes after each answer, without a word
			mu.Lock()
			n++
			mu.Unlock()
			q, err := http.ReadRequest(bufio.NewReader(c))
			if err == nil {
				_, _ = io.Copy(io.Discard, q.Body)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		})
		f := newFarm(t, w, load(t, webPolicy))
		conn := f.dialName("a.example.com", "80")
		_, _ = io.WriteString(conn, get("/public/1"))
		if status, _ := lastAnswer(t, conn, 1); status != 200 {
			t.Fatalf("the first: %d", status)
		}
		_, _ = io.WriteString(conn, c.second)
		if status, body := lastAnswer(t, conn, 1); status != c.status {
			t.Errorf("%.10q: %d %s, want %d", c.second, status, body, c.status)
		}
	}
}

// A body that breaks off, or is none, is no whole request to the upstream, and the
// box is told.
func TestABrokenBodyIsNoRequest(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"whole":         {"3\r\nabc\r\n0\r\n\r\n", 200},
		"no size":       {"3\r\nabc\r\nx\r\n\r\n", 400},
		"a chunk of LF": {"3\nabc\n0\n\n", 400},
		"too long":      {"3\r\nabcd\r\n0\r\n\r\n", 400},
	} {
		w := newWorld()
		whole := make(chan bool, 1)
		w.host(t, "a.example.com", "8.8.4.4", "80", func(c net.Conn) {
			q, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				whole <- false
				return
			}
			_, err = io.Copy(io.Discard, q.Body)
			whole <- err == nil
			if err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		})
		f := newFarm(t, w, load(t, webPolicy))
		conn := f.dialName("a.example.com", "80")
		_, _ = io.WriteString(conn, "POST /say HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"+c.body)
		if status, body := lastAnswer(t, conn, 1); status != c.status {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if got := <-whole; got != (c.status == 200) {
			t.Errorf("%s: the upstream has a whole request: %v", name, got)
		}
	}
}

// Some servers do not read a body that nobody asked for, and take its bytes for the
// next request. They would be one that nobody judged: for any method, path and host.
func TestABodyIsNoRequestToAServerThatDoesNotReadIt(t *testing.T) {
	const hidden = "DELETE /secret HTTP/1.1\r\nHost: evil.net\r\n\r\n"
	for _, c := range []struct{ line, frame string }{
		{"GET /any", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(hidden), hidden)},
		{"POST /any", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(hidden), hidden)},
		{"DELETE /any", fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden)},
	} {
		w := newWorld()
		var mu sync.Mutex
		var lines []string
		w.host(t, "b.example.com", "8.8.4.4", "80", func(c net.Conn) {
			in := bufio.NewReader(c)
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				closes := false
				for head := "-"; head != "\r\n"; closes = closes || head == "Connection: close\r\n" {
					if head, err = in.ReadString('\n'); err != nil {
						return
					}
				}
				mu.Lock()
				lines = append(lines, strings.TrimSpace(line))
				mu.Unlock()
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				if closes {
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, in)
					return
				}
			}
		})
		f := newFarm(t, w, load(t, webPolicy))
		conn := f.dialName("b.example.com", "80") // whose entry allows all requests to this host
		const head = " HTTP/1.1\r\nHost: b.example.com\r\n"
		_, _ = io.WriteString(conn, c.line+head+c.frame)
		if status, body := lastAnswer(t, conn, 1); status != 200 {
			t.Errorf("%s: %d %s", c.line, status, body)
		}
		_, _ = io.WriteString(conn, "GET /next"+head+"\r\n") // the connection goes on
		if status, body := lastAnswer(t, conn, 1); status != 200 {
			t.Errorf("behind %s: %d %s", c.line, status, body)
		}
		mu.Lock()
		if got, want := fmt.Sprint(lines), fmt.Sprintf("[%s HTTP/1.1 GET /next HTTP/1.1]", c.line); got != want {
			t.Errorf("the upstream sees %s, want %s", got, want)
		}
		mu.Unlock()
	}
}

// An upstream that says more than it was asked answers no later request with it: an
// answer too many, or a body where there is none.
func TestAnAnswerThatNobodyAskedForIsDropped(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
	for _, c := range []struct {
		name, line, answer, first string
	}{
		{"two answers", "GET /public/x", ok + "ok" + ok + "no", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"a body behind HEAD", "HEAD /public/x", "HTTP/1.1 200 OK\r\nContent-Length: 38\r\n\r\n" + ok, "HTTP/1.1 200 OK\r\nContent-Length: 38\r\n\r\n"},
		{"a body behind 204", "GET /public/x", "HTTP/1.1 204 No Content\r\nContent-Length: 38\r\n\r\n" + ok, "HTTP/1.1 204 No Content\r\n\r\n"},
		{"chunks behind 204", "GET /public/x", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"a body behind 304", "GET /public/x", "HTTP/1.1 304 Not Modified\r\nContent-Length: 38\r\n\r\n" + ok, "HTTP/1.1 304 Not Modified\r\nContent-Length: 38\r\n\r\n"},
		{"hints, and two answers", "GET /public/x", "HTTP/1.1 103 Early Hints\r\nAlt-Svc: x\r\n\r\n" + ok + "ok" + "HTTP/1.1 408 Request Timeout\r\n\r\n", ok + "ok"},
	} {
		w := newWorld()
		w.host(t, "a.example.com", "8.8.4.4", "80", func(conn net.Conn) {
			in := bufio.NewReader(conn)
			for {
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				if _, err := io.WriteString(conn, c.answer); err != nil {
					return
				}
			}
		})
		f := newFarm(t, w, load(t, webPolicy))
		conn := f.dialName("a.example.com", "80")
		for range 3 {
			_, _ = io.WriteString(conn, c.line+" HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
			got := make([]byte, len(c.first))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != c.first {
				t.Errorf("%s: %q, %v", c.name, got, err)
				break
			}
		}
	}
}

// An upstream that answers before it has all, and closes, is heard.
func TestAnEarlyAnswerIsHeard(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "80", func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.CopyN(io.Discard, c, 1<<20) // and then a reset
	})
	f := newFarm(t, w, load(t, webPolicy))
	conn := f.dialName("a.example.com", "80")
	go func() {
		_, _ = io.WriteString(conn, "POST /say HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 100000000\r\n\r\n")
		for block := make([]byte, 1<<16); ; {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
	}()
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || r.StatusCode != 413 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A body that is none is a denial also if the upstream has answered before it came;
// and its request is told of once.
func TestABrokenBodyIsDeniedBehindAnEarlyAnswer(t *testing.T) {
	w := newWorld()
	var a recorder
	w.host(t, "a.example.com", "8.8.4.4", "80", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		a.serve(c)
	})
	f := newFarm(t, w, load(t, webPolicy))
	conn := f.dialName("a.example.com", "80")
	_, _ = io.WriteString(conn, "POST /say HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n")
	if status, body := lastAnswer(t, conn, 1); status != 200 || body != "ok" {
		t.Fatalf("%d %q", status, body)
	}
	_, _ = io.WriteString(conn, "+4\r\nbody\r\n0\r\n\r\n")
	if e := f.denied("http_malformed"); e.Kind != event.HTTP || e.Path != "/say" {
		t.Errorf("%+v", e)
	}
	if !ended(conn) {
		t.Error("the connection is still open")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if e.Kind == event.HTTP && e.Decision == event.Allow {
			t.Errorf("and it is told that it was allowed: %+v", e)
		}
	}
	if strings.Contains(a.text(), "body") {
		t.Errorf("the upstream got %q", a.text())
	}
}

func TestAnUpstreamThatDoesNotAnswerIsTold(t *testing.T) {
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "80", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	f := newFarm(t, w, load(t, webPolicy), func(c *Config) { c.Timeouts.Idle = 2 * time.Second })
	conn := f.dialName("a.example.com", "80")
	_, _ = io.WriteString(conn, get("/public/x"))
	if status, body := lastAnswer(t, conn, 1); status != 504 {
		t.Errorf("%d %s", status, body)
	}
	f.denied("upstream_timeout")
}
