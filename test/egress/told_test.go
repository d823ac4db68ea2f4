package egress

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

// toldHelpers are what these cases call beside the others.
const toldHelpers = siblingHelpers + `
def none(tries, ok="HTTP/1.1 200"):
    "those of many tries that were let through"
    return [k for k, got in tries if ok in got]
def paths(*all): return none([(p, G(p)) for p in all])
def lines(*all): return none([(l, Q(l)) for l in all])
def fields(method, path, *all): return none([(f, Q(method + " " + path + " HTTP/1.1", f + "Connection: close\r\n")) for f in all])
def drip(parts, gap, host="api.example.com", port=80, most=40):
    "sends parts slowly; says what came, or how it ended"
    s = K(host, port); s.settimeout(0.01); end = time.time() + most; got = b""
    try:
        for p in parts:
            s.sendall(p); t = time.time() + gap
            while time.time() < t:
                try:
                    b = s.recv(4096)
                    if not b: return "closed"
                    got += b
                except TimeoutError: pass
            if time.time() > end: return "open"
            if got: return got[:12].decode("latin-1")
    except OSError as e: return got[:12].decode("latin-1") or name(e)
    return "open"
`

// told is one case: what is denied, how, and the same where it is allowed.
type told struct {
	what         string
	deny, denied string
	codes        string // of the verdict; empty: it is no denial, but less arrives
	allow        string
	allowed      string
	arrives      string
	quiet        quiet
	never        string
}

func toldCases() []told {
	const (
		nobody  = `^\[\]$`
		passed  = `^record 22$`
		refused = `^(closed|ConnectionResetError|BrokenPipeError|nothing)$`
		ok      = `G("/public/ok")`
		helloOK = `P(RC(HM()))`
		badForm = `.`
	)
	other := `"` + upstream.GoodAddr + `"`
	return []told{
		// Names.
		{what: "a sibling below the same wildcard in the hello", deny: `T("b.wild.example.com", "a.wild.example.com")`, denied: reset, codes: `sni`, quiet: spoke, never: "GET /tls", allow: `T("b.wild.example.com")`, allowed: hello, arrives: `GET /tls`},
		{what: "what a wildcard's exception denies, in the hello", deny: `T("bad.wild.example.com", "a.wild.example.com")`, denied: reset, codes: `.`, quiet: spoke, never: "GET /tls"},
		{what: "another name's address of version 6", deny: `T("api.example.com", A("x.wild.example.com", socket.AF_INET6))`, denied: reset, codes: `sni`, quiet: spoke, never: "GET /tls", allow: `T("x.wild.example.com", A("x.wild.example.com", socket.AF_INET6))`, allowed: hello, arrives: `GET /tls`},
		{what: "a sibling below the same wildcard as the host of a request", deny: `G("/w", host="b.wild.example.com", to="a.wild.example.com")`, denied: `^HTTP/1.1 4`, codes: `.`, never: "/w", allow: `G("/w", host="a.wild.example.com", to="a.wild.example.com")`, allowed: http2, arrives: `GET /w HTTP`},
		{what: "two dots behind the host of a request", deny: `G("/public/dots", host="api.example.com..")`, denied: `^HTTP/1.1 4`, codes: `.`, never: "/public/dots", allow: ok, allowed: http2},
		{what: "letters as data in a name that is allowed", deny: `O("SeCrEtDaTa.wild.example.com")`, denied: `SeCrEt`, quiet: anything, never: "SeCrEt", allow: `O("secretdata2.wild.example.com")`, allowed: `secretdata2`, arrives: `dns .*secretdata2.wild`},
		{what: "names that the box itself has written down", deny: `(open("/tmp/hosts", "w").write("` + upstream.EvilAddr + ` api.example.com"), C("` + upstream.EvilAddr + `", 80, 5))[1]`, denied: reset, codes: `.`},
		{what: "a port that only another entry of the name's parent has", deny: `C("z.wild.example.com", 8080)`, denied: reset, codes: `.`, allow: `C("z.wild.example.com", 80)`, allowed: `^connected$`},

		// Addresses.
		{what: "the world's addresses, mapped", deny: `O("::ffff:` + upstream.GoodAddr + `", "::ffff:` + upstream.EvilAddr + `", "::ffff:` + upstream.MetadataAddr + `", wait=2)`, denied: nobody, codes: `.`, allow: `O("::ffff:" + A("api.example.com"))`, allowed: `ffff`, arrives: `conn ` + upstream.GoodAddr},
		{what: "an allowed host's address in every form of version 6", deny: `O("::5db8:d70e", "::ffff:0:5db8:d70e", "2002:5db8:d70e::1", "64:ff9b::5db8:d70e", "` + upstream.NATGood + `", "` + upstream.GoodAddr6 + `", wait=2)`, denied: nobody, codes: `.`, allow: ok, allowed: http2},
		{what: "a multicast group as a resolver", deny: `[D("evil.example.net", server=a, wait=1) for a in ("224.0.0.251", "239.1.1.1")]`, denied: `^\['(timeout|rcode 3, 0 answers|OSError)', '(timeout|rcode 3, 0 answers|OSError)'\]$`, allow: `D("api.example.com")`, allowed: `rcode 0, 1`},

		// What speaks at the port of DNS.
		{what: "HTTP to the port of DNS", deny: `R(` + other + `, 53, b"GET /dns HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 5)`, denied: `^(got b''|ConnectionResetError|timeout)$`, never: "/dns", allow: `W([L2(QN("api.example.com"))])`, allowed: `^0:1$`},
		{what: "TLS to the port of DNS", deny: `P(RC(HM()), "` + upstream.GoodAddr + `", 53, 5)`, denied: `^(closed|ConnectionResetError|timeout)$`, never: "api", allow: helloOK, allowed: passed},
		{what: "a tunnel over the port of DNS", deny: `[U(a, 53, b"\1\0\0\0" + b"w" * 144)[-9:] for a in (GW, ` + other + `, "` + upstream.Resolver + `")]`, denied: `.`, codes: `dns_malformed`, never: "wwww", allow: `D("api.example.com", server="` + upstream.Resolver + `")`, allowed: `rcode 0, 1`},
		{what: "datagrams for HTTP/3 over version 6", deny: `[U(a, 443, b"\xc0\0\0\0\1" + b"q" * 1200) for a in (A("six.example.com", socket.AF_INET6), "` + upstream.GoodAddr6 + `")]`, denied: `^\['timeout', 'timeout'\]$`, codes: `packet`, allow: helloOK, allowed: passed},

		// The hello.
		{what: "a hello a byte now and then", deny: `drip([bytes([b]) for b in RC(HM(b"evil.example.net"))[:60]], 0.3, port=443)`, denied: `^(closed|ConnectionResetError|BrokenPipeError)$`, codes: `hello_timeout`, quiet: spoke, never: "evil", allow: `P(RC(HM()), parts=40, gap=0.01)`, allowed: passed},
		{what: "bytes behind a hello for another name", deny: `P(RC(HM(b"evil.example.net")) + b"early" * 99)`, denied: refused, codes: `.`, quiet: spoke, never: "early", allow: `P(RC(HM()) + RC(b"early-two" * 9, kind=23))`, allowed: `^record`, arrives: `conn ` + upstream.GoodAddr},
		{what: "versions of TLS that are too old, in each place", deny: `none([(i, P(RC(h))) for i, h in enumerate((HM(ver=b"\3\0"), HM(ver=b"\3\1"), HM(ext=X(43, V(1, b"\3\1"))), HM(ext=X(43, V(1, b"\3\2\3\1"))), HM(ext=X(43, b"")), HM(ext=X(43, V(1, b""))), HM(ext=X(43, V(1, b"\3"))), HM(ext=X(43, V(1, b"\3\3")) * 2)))], "record 22")`, denied: nobody, codes: `.`, quiet: spoke, allow: `P(RC(HM(ext=X(43, V(1, b"\3\3")))))`, allowed: passed},
		{what: "a hello whose lengths do not meet", deny: `none([(i, P(RC(h))) for i, h in enumerate((b"\1" + V(3, b"\3\3" + b"r" * 32 + V(1, b"s" * 33) + HM()[39:]), HM()[:-1], HM() + b"x", b"\1\0\0\x05" + HM()[4:], b"\2" + HM()[1:], HM(ext=b"\0\x17"), HM(ext=b"\0\x17\0\x05ab"), HM(comp=b""), HM(suites=b"\xc0")))], "record 22")`, denied: nobody, codes: `.`, quiet: spoke, allow: helloOK, allowed: passed},
		{what: "other protocols to a port of TLS", deny: `none([(i, P(b, wait=12)) for i, b in enumerate((b"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: evil\r\n\r\n", b"\4\1\1\xbb\x5d\xb8\xd7\x0eu\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x10\x10\0\4MQTT\4\2\0\x3c\0\4evil", b"\x30\x0c\2\1\1\x60\7\2\1\3\4\0\x80\0", b"\3\0\0\x2b\x26\xe0\0\0\0\0\0Cookie: mstshash=evil\r\n", b"\0\0\0\x45\xffSMBr" + b"\0" * 60, b"<stream:stream to='evil'>", b"*1\r\n$4\r\nPING\r\n", b"\x13BitTorrent protocol" + b"\0" * 48))], "record")`, denied: nobody, codes: `not_tls|hello`, quiet: spoke, never: "evil", allow: helloOK, allowed: passed},
		{what: "a hello that asks for names in parts of records of other kinds", deny: `none([(k, P(RC(HM()[:20]) + RC(HM()[20:], kind=k))) for k in (0, 20, 21, 23, 24, 25, 255)], "record 22")`, denied: nobody, codes: `.`, quiet: spoke, allow: `P(RC(HM()[:20]) + RC(HM()[20:]))`, allowed: passed},

		// The request's line.
		{what: "lines that are nearly one", deny: `lines("GET  /public/line HTTP/1.1", "GET /public/line HTTP/1.1 ", "GET /public/line  HTTP/1.1", " GET /public/line HTTP/1.1", "GET /public/line\tHTTP/1.1", "GET /public/line HTTP/1.10", "GET /public/line HTTP/01.1", "GET /public/line HTTP/1.2", "GET /public/line HTTP/1.", "GET /public/line HTTP/3", "GET /public/line HTTPS/1.1", "GET /public/line HTTP/1.1\r", "GET /public/line\rHTTP/1.1", "GET /public/line\x0bHTTP/1.1", "GET /public/line", "GET", "GET /public/line x HTTP/1.1", "GET /public/line\0 HTTP/1.1", "\x16GET /public/line HTTP/1.1")`, denied: nobody, codes: badForm, never: "/public/line", allow: `Q("GET /public/line2 HTTP/1.1")`, allowed: http2, arrives: `GET /public/line2 HTTP/1.1`},
		{what: "targets that are nearly the host's", deny: `lines("GET http:///public/abs HTTP/1.1", "GET http:/public/abs HTTP/1.1", "GET http:api.example.com/public/abs HTTP/1.1", "GET http://api.example.com:80@evil.example.net/public/abs HTTP/1.1", "GET http://api.example.com%2eevil/public/abs HTTP/1.1", "GET http://[::1]/public/abs HTTP/1.1", "GET http://api.example.com:/public/abs HTTP/1.1", "GET http://api.example.com:443/public/abs HTTP/1.1", "GET ws://api.example.com/public/abs HTTP/1.1", "GET http://api.example.com?/public/abs HTTP/1.1", "GET http://api.example.com#/public/abs HTTP/1.1", "GET http:\\\\api.example.com\\public\\abs HTTP/1.1", "GET gopher://api.example.com/public/abs HTTP/1.1", "GET file:///public/abs HTTP/1.1")`, denied: nobody, codes: badForm, never: "/public/abs", allow: `Q("GET HTTP://API.EXAMPLE.COM/public/abs2 HTTP/1.1")`, allowed: http2, arrives: `GET /public/abs2 HTTP/1.1`},
		{what: "methods that nobody allows", deny: `lines(*[m + " /public/method HTTP/1.1" for m in ("Get", "gET", "COPY", "MOVE", "LOCK", "MKCOL", "SEARCH", "QUERY", "LINK", "M-SEARCH", "BREW", "REPORT", "SUBSCRIBE", "TRACK", "ACL", "GETX", "GE", "GET,DELETE", "GET|DELETE", "*", "''", "G%45T")])`, denied: nobody, codes: badForm, never: "/public/method", allow: `G("/public/method2", "HEAD")`, allowed: http2, arrives: `HEAD /public/method2`},

		// Where a request ends.
		{what: "a denied request behind an allowed one", deny: `H(b"GET /public/a1 HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /private HTTP/1.1\r\nHost: api.example.com\r\n\r\n", all=True)`, denied: `^HTTP/1.1 200 OK; HTTP/1.1 403`, codes: `.`, quiet: spoke, never: "/private", allow: `H(b"GET /public/a2 HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /public/a3 HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n", all=True)`, allowed: `^HTTP/1.1 200 OK; HTTP/1.1 200`, arrives: `GET /public/a3`},
		{what: "a denied request between allowed ones", deny: `H(b"".join(b"GET " + p + b" HTTP/1.1\r\nHost: api.example.com\r\n\r\n" for p in (b"/public/b1", b"/private", b"/public/b2")), all=True, wait=5)`, denied: `^HTTP/1.1 200 OK; HTTP/1.1 403`, codes: `.`, quiet: spoke, never: "/private"},
		{what: "what follows a request that is the last", deny: `H(b"GET /public/c1 HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\nGET /public/late HTTP/1.1\r\nHost: api.example.com\r\n\r\n", all=True)`, denied: `^HTTP/1.1 200 OK$`, quiet: spoke, never: "/public/late"},
		{what: "what follows one of HTTP/1.0", deny: `H(b"GET /public/d1 HTTP/1.0\r\nHost: api.example.com\r\n\r\nGET /public/late HTTP/1.0\r\nHost: api.example.com\r\n\r\n", all=True)`, denied: `^HTTP/1.1 200 OK$`, quiet: spoke, never: "/public/late"},
		{what: "a request in the body of a denied one", deny: `H(b"POST /private HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 58\r\n\r\nGET /public/inner HTTP/1.1\r\nHost: api.example.com\r\nX: yyy\r\n\r\n", all=True, wait=5)`, denied: `^HTTP/1.1 403 [A-Za-z]*$`, codes: `.`, never: "/public/inner"},
		{what: "a body that is promised to a denied path", deny: `Q("POST /private HTTP/1.1", "Expect: 100-continue\r\nContent-Length: 4\r\n", body=b"body", all=True, wait=5)`, denied: `^HTTP/1.1 403`, codes: `.`, never: "body", allow: `Q("POST /public/up HTTP/1.1", "Expect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n", body=b"body", all=True)`, allowed: `200`, arrives: `body`},
		{what: "encodings of more than one word", deny: `none([(e, Q("POST /public/up HTTP/1.1", "Transfer-Encoding: " + e + "\r\nConnection: close\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")) for e in ("chunked, chunked", "chunked, identity", "identity, chunked", "gzip, chunked", "chunked;q=1", "\"chunked\"", "chunked,", ",chunked", "chunked\0", "x, chunked", "chunke\x64\x0c")])`, denied: nobody, codes: badForm, never: "body", allow: `Q("POST /public/up HTTP/1.1", "Transfer-Encoding: Chunked\r\nConnection: close\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")`, allowed: http2, arrives: `body`},
		{what: "fields behind a body", deny: `CH(b"4\r\nbody\r\n0\r\nHost: evil.example.net\r\nX-HTTP-Method-Override: DELETE\r\nContent-Length: 7\r\nX-Data: Override\r\n\r\n")`, denied: `^HTTP/1.1 `, quiet: anything, never: "verride"},
		{what: "fields without an end behind a body", deny: `CH(b"4\r\nbody\r\n0\r\n" + b"X-Trail: trailing\r\n" * 9000)`, denied: `.`, quiet: spoke, never: "trailing"},
		{what: "a chunk's size with very much behind it", deny: `CH(b"4;x=" + b"z" * 20000 + b"\r\nbody\r\n0\r\n\r\n")`, denied: `.`, codes: `.`, quiet: spoke, never: "zzzz"},
		{what: "bodies where a rule only reads", deny: `none([(m + e, Q(m + " /public/ok HTTP/1.1", e + "\r\nConnection: close\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")) for m in ("GET", "HEAD") for e in ("Transfer-Encoding: chunked", "Content-Length: 14")])`, denied: nobody, codes: `body`, never: "body", allow: `Q("GET /public/ok HTTP/1.1", "Content-Length: 0\r\n")`, allowed: http2},
		{what: "a head a byte now and then", deny: `drip([bytes([b]) for b in b"GET /public/slowly HTTP/1.1\r\nHost: api.example.com\r\nX-A: " + b"s" * 200], 0.5)`, denied: `^(closed|ConnectionResetError|BrokenPipeError|HTTP/1.1 408)$`, quiet: spoke, never: "slowly", allow: `drip([b"GET /public/slow", b"ly2 HTTP/1.1\r\nHost: api.example.com\r\n", b"\r\n", b"", b"", b""], 1)`, allowed: `^HTTP/1.1 200`, arrives: `slowly2`},

		// Fields.
		{what: "fields that name another host", deny: `Q("GET /public/names HTTP/1.1", "".join(f + ": evil.example.net\r\n" for f in ("X-Forwarded-Host", "X_Forwarded_Host", "x-forwarded-HOST", "X-Host", "X-Original-Host", "X-Forwarded-Server", "X-HTTP-Host-Override", "Forwarded", "X.Forwarded.Host", "X-Real-Host", "Host-Override")))`, denied: `^HTTP/1.1 (200|400)`, quiet: anything, never: "evil.example.net"},
		{what: "fields of one hop, and those that it names", deny: `Q("GET /public/hop HTTP/1.1", "Connection: keep-alive, X-Hop, Cookie\r\nX-Hop: hopgone\r\nCookie: hopgone\r\nProxy-Connection: hopgone\r\nProxy-Authorization: hopgone\r\nTE: hopgone\r\nKeep-Alive: hopgone\r\n")`, denied: `^HTTP/1.1 (200|400)`, quiet: anything, never: "hopgone", allow: `Q("GET /public/hop2 HTTP/1.1", "X-Hop: stays\r\n")`, allowed: http2, arrives: `X-Hop: stays`},
		{what: "the host as a field of one hop", deny: `Q("GET /public/hophost HTTP/1.1", "Connection: Host\r\nX-Forwarded-Host: evil.example.net\r\n")`, denied: `^HTTP/1.1 (200|400)`, quiet: anything, never: "evil"},
		{what: "another protocol, in each form", deny: `fields("GET", "/public/up", *["Connection: Upgrade\r\nUpgrade: " + u + "\r\n" for u in ("h2c", "H2C", "HTTP/2.0", "websocket, h2c", "\th2c", "TLS/1.0, HTTP/1.1", "IRC/6.9", "connect-udp", "mptp", "x")])`, denied: nobody, codes: `upgrade|http_`, never: "pgrade", allow: ok, allowed: http2},
		{what: "names of fields that are none", deny: `fields("GET", "/public/fname", ":authority: evil.example.net\r\n", ":path: /private\r\n", "X A: b\r\n", "X\tA: b\r\n", "X(A): b\r\n", "X\"A: b\r\n", "\0: b\r\n", "X\xffA: b\r\n", "X-A\0: b\r\n", "X/A: b\r\n")`, denied: nobody, codes: badForm, never: "/public/fname", allow: `Q("GET /public/fname2 HTTP/1.1", "X!#$%&'*+-.^_|~9: b\r\n")`, allowed: http2, arrives: `fname2`},
		{what: "queries that name another method", deny: `none([(q, Q("POST /public/up?" + q + " HTTP/1.1", "Content-Length: 0\r\n")) for q in ("%5Fmethod=DELETE", "_METHOD=DELETE", "_method[]=DELETE", "_method%5B%5D=x", "a;_method=DELETE", "a&%20_method=DELETE", "_method", ".method=x", "_met%68od=x", "X-HTTP-Method-Override=DELETE", "%EF%BC%BFmethod=DELETE", "_method%00=x", "?_method=x", "&&_method=x")])`, denied: nobody, codes: `overrid`, never: "ethod", allow: `Q("POST /public/up?a_mode=x HTTP/1.1", "Content-Length: 0\r\n")`, allowed: http2, arrives: `a_mode`},

		// Paths.
		{what: "a denied path by every step to it", deny: `paths("/public/%2e/secret/x", "/public/./%2E/secret/x", "/public/x/%2e%2e/secret/x", "/public//./secret//x", "/public/secret", "/public/secret/", "/public/secret?x", "/x/../public/secret", "//public/secret", "/public/a/b/../../secret/x", "/public/secret/..;/secret/x", "/public/secret/./x", "/%70ublic/%73%65%63%72%65%74/x", "/public/secret.html", "/public/secret;a=b;c/x", "/public/secret%20/x", "/public/%20secret/x", "/public/secret::$INDEX_ALLOCATION/x")`, denied: nobody, codes: `denied_by_rule|not_allowed|path|http`, never: "ecret", allow: `G("/public/%2e/ok2")`, allowed: http2, arrives: `GET /public/ok2 HTTP`},
		{what: "a denied path in letters of other forms", deny: `paths("/public/%E2%93%A2ecret/x", "/public/%F0%9D%90%AC%F0%9D%90%9Ecret/x", "/public/%CB%A2ecret/x", "/public/s%C3%A9cret/x", "/public/se%CC%81cret/x", "/public/sec%CD%8Fret/x", "/public/secret%EF%B8%8F/x", "/public/%E3%85%A4secret/x", "/public/%E1%85%9Fsecret/x", "/public/%C5%BFecret/x", "/public/se%E2%84%82ret/x", "/public/secret%EF%B9%94v/x", "/public/secret%E2%81%87", "/public/sec%E2%80%8Bret/x", "/public/%F3%A0%81%B3secret/x", "/public/SECR%C3%8BT/x")`, denied: nobody, codes: `denied_by_rule|path|http`, never: "cret", allow: `G("/public/%D1%95ecret/x")`, allowed: http2, arrives: `D1%95ecret`},
		{what: "a path that servers read in two ways", deny: `paths("/public/a%2fb", "/public/a%5cb", "/public/a\\b", "/public/%00", "/public/a%0ab", "/public/%c0%af", "/public/%ed%a0%80", "/public/%f4%90%80%80", "/public/%252e", "/public/%u002e", "/public/..%09/x", "/public/%", "/public/%4", "/public/%zz", "/public/a%E2%81%84b", "/public/a%E2%88%95b", "/public/%EF%BC%8E%EF%BC%8E/x", "/public/%E2%80%A5/x", "/public/a|b", "/public/a^b", "/public/<a>", "/public/{a}", "/public/\x60a")`, denied: nobody, codes: badForm, never: "/public/", allow: `G("/public/%E2%82%AC")`, allowed: http2, arrives: `/public/%E2%82%AC`},
		{what: "a path one byte longer than may be", deny: `Q("GET /public/" + "l" * 2041 + " HTTP/1.1")`, denied: `^HTTP/1.1 414`, codes: `.`, never: "llll", allow: `Q("GET /public/" + "l" * 2040 + " HTTP/1.1")`, allowed: http2, arrives: `lllll`},

		// What is told of these is text of the box's: see hidden.
		{what: "names, hosts and paths that act on a terminal", deny: `M("\x1b]0;title\x07.evil.example.net", "\u202eevil.example.net", "a\nb.evil.example.net", "\x9b2J.evil.example.net", "\U000e0061.evil.example.net") + none([(h, G("/public/esc", host=h)) for h in ("\x1b[2Jevil", "evil\x9b2J", "\xe2\x80\xaeevil", "evil\x7f")]) + paths("/private/\x1b[2J", "/private/%1b[2J", "/private/%E2%80%AE", "/private/%F3%A0%81%A1", "/private/\xe2\x80\xae") + lines("\x1b[2J /private HTTP/1.1", "GET\x9b /private HTTP/1.1")`, denied: nobody, codes: `.`, never: "/private", allow: ok, allowed: http2},

		// Ports with other rules of the same host.
		{what: "another port's host field", deny: `none([(h, G("/public/port", host=h)) for h in ("api.example.com:8080", "api.example.com:443", "api.example.com:0", "api.example.com:65616", "api.example.com:+80", "api.example.com:80:80", "api.example.com:80/", "[api.example.com]:80", "api.example.com\t:80")])`, denied: nobody, codes: badForm, never: "/public/port", allow: `G("/public/port2", host="api.example.com:80")`, allowed: http2, arrives: `/public/port2`},
		{what: "SSH and raw bytes to a port of plain HTTP", deny: `none([(i, R("api.example.com", 80, b, 15)) for i, b in enumerate((b"SSH-2.0-evil\r\n", b"\0" * 64, b"\x16\3\1\0\5hello", b"evil\r\n\r\n", b"*1\r\n$4\r\nPING\r\n"))], "hello")`, denied: nobody, codes: `http|not`, never: "evil", allow: `R("raw.example.com", 5432, b"raw bytes")`, allowed: `raw bytes`, arrives: `raw bytes`},
	}
}

// toldRules are the rules of the box.
const toldRules = `{"version": 1, "limits": {"url_bytes": 2048, "header_bytes": 8192, "conns": 64}, "hosts": [
	{"name": "api", "host": "api.example.com", "tls": "splice"},
	{"name": "wild", "host": "*.wild.example.com", "tls": "splice"},
	{"name": "wildplain", "host": "*.wild.example.com", "port": 80, "protocol": "http"},
	{"name": "bad", "host": "bad.wild.example.com", "decide": "deny"},
	{"name": "six", "host": "six.example.com", "tls": "splice"},
	{"name": "plain", "host": "api.example.com", "port": 80, "rules": [
		{"name": "read", "methods": ["GET", "HEAD"], "paths": ["/public/**"]},
		{"name": "post", "methods": ["POST"], "paths": ["/public/up"]},
		{"name": "secret", "paths": ["/public/secret/**"], "decide": "deny"}]},
	{"name": "raw", "host": "raw.example.com", "port": 5432, "protocol": "tcp"}]}`

// Whatever a box tries, in kinds that are none of the list's own lines: what is denied
// is told as denied, and nothing of it arrives; the same where it is allowed arrives.
func TestEachDenialIsToldAndNothingOfItArrives(t *testing.T) {
	f := theWorld(t)
	twice(t, func(t *testing.T, u harness.User) {
		d := harness.StartServer(t, u, "--resolver", resolverAddr)
		s := sandbox(u)
		s["network"] = map[string]any{"mode": "allowlist", "rules": json.RawMessage(toldRules)}
		b := made(d, map[string]any{"sandbox": s})
		try := func(expr string) string {
			var out struct {
				Stdout, Stderr *string
			}
			d.Must("POST", "/v1/boxes/"+b.ID+"/exec", map[string]any{"command": []string{"python3", "-c", helpers + toldHelpers + "\nprint(ascii(tries(lambda: " + expr + "))[1:-1])"}}, &out)
			if out.Stdout == nil {
				t.Fatalf("%s says nothing", expr)
			}
			return strings.TrimSpace(*out.Stdout)
		}
		verdicts := func() map[string]int64 {
			var n networkJSON
			d.Must("GET", "/v1/boxes/"+b.ID+"/network", nil, &n)
			codes := map[string]int64{}
			for _, v := range n.Traffic.Denied {
				codes[v.Code] += v.Count
			}
			return codes
		}
		for _, c := range toldCases() {
			t.Run(c.what, func(t *testing.T) {
				settle(t, f)
				before := verdicts()
				if got := try(c.deny); !regexp.MustCompile(c.denied).MatchString(got) {
					t.Errorf("%s says %q, not %s", c.deny, got, c.denied)
				}
				judge(t, attack{quiet: c.quiet, never: c.never}, f.take(t))
				if c.codes != "" {
					awaitVerdict(t, c.codes, before, verdicts)
				}
				if c.allow == "" {
					return
				}
				if got := try(c.allow); !regexp.MustCompile(c.allowed).MatchString(got) {
					t.Errorf("the control %s says %q, not %s", c.allow, got, c.allowed)
				}
				if c.arrives != "" {
					arrives(t, f, c.arrives)
				}
			})
		}
		var n networkJSON
		d.Must("GET", "/v1/boxes/"+b.ID+"/network", nil, &n)
		for _, v := range n.Traffic.Denied {
			for _, text := range []string{v.Name, v.Addr, v.Method, v.Path, v.Rule, v.Reason, v.Fix} {
				if hidden := stream.Clean([]byte(text)) != text || strings.Contains(text, "\n"); hidden {
					t.Errorf("told of %s: %q", v.Code, text)
				}
			}
		}
	})
}

// awaitVerdict waits until there is a denial more than before of a code.
func awaitVerdict(t *testing.T, codes string, before map[string]int64, now func() map[string]int64) {
	t.Helper()
	re, all := regexp.MustCompile(codes), map[string]int64{}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		all = now()
		for code, n := range all {
			if n > before[code] && re.MatchString(code) {
				return
			}
		}
	}
	t.Errorf("no denial of %s is told: before %v, now %v", codes, before, fmt.Sprint(all))
}
