package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// siblingHelpers build what no library sends.
const siblingHelpers = `
def V(n, b): return len(b).to_bytes(n, "big") + b
def X(kind, b=b""): return struct.pack(">H", kind) + V(2, b)
def SN(*names): return X(0, V(2, b"".join(bytes([k]) + V(2, n) for k, n in names)))
TLS12 = X(10, V(2, b"\0\x17\0\x1d")) + X(11, V(1, b"\0")) + X(13, V(2, b"\4\3\4\1\2\1\2\3"))
def HM(sni=b"api.example.com", ext=b"", names=None, ver=b"\3\3", suites=b"\xc0\x2b\xc0\x2f", comp=b"\0", tail=b"", front=b""):
    "a message of the handshake"
    e = front + (SN(*names) if names is not None else SN((0, sni)) if sni is not None else b"") + TLS12 + ext
    return b"\1" + V(3, ver + b"r" * 32 + V(1, b"") + V(2, suites) + V(1, comp) + V(2, e) + tail)
def RC(b, n=16384, kind=22, ver=b"\3\1"):
    "records of n bytes"
    return b"".join(bytes([kind]) + ver + V(2, b[i:i+n]) for i in range(0, len(b), n))
def P(data, host="api.example.com", port=443, wait=100, parts=None, gap=0.0):
    "sends bytes, in parts, and says what kind of record comes back"
    try:
        s = K(host, port, wait); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(data), parts or max(len(data), 1)):
            s.sendall(data[i:i + (parts or len(data))])
            if gap: time.sleep(gap)
        b = s.recv(4096)
        return "record %d" % b[0] if b else "closed"
    except OSError as e: return name(e)
def TWO(first, second):
    "sends a second hello once the first is answered"
    s = K("api.example.com", 443); s.sendall(first); s.recv(9999)
    try:
        s.sendall(second); b = s.recv(9999); return "record %d" % b[0] if b else "closed"
    except OSError as e: return name(e)
def Q(line, more="", host="api.example.com", body=b"", **k):
    "sends a request with bytes as they are"
    return H((line + "\r\nHost: " + host + "\r\n" + more + "\r\n").encode("latin-1") + body, **k)
def CH(*parts):
    "sends a request with chunks, and reads to the end: the world answers heads, and who goes then breaks off the body"
    return Q("POST /public/up HTTP/1.1", "Transfer-Encoding: chunked\r\nConnection: close\r\n", body=b"".join(parts), all=True)
def NL(kind, body):
    "asks the kernel over netlink for a change of the network"
    s = socket.socket(16, 3, 0); s.bind((0, 0)); s.settimeout(30)
    s.send(struct.pack("IHHII", 16 + len(body), kind, 0x405, 1, 0) + body)
    e = -struct.unpack("i", s.recv(9999)[16:20])[0]
    if e: raise OSError(e, "netlink")
    return "done"
def MV(): return NL(16, struct.pack("BxHiII", 0, 0, socket.if_nametoindex("eth0"), 0, 0) + struct.pack("HHI", 8, 19, __import__("os").getpid()))
def IN(flags, expr):
    "does something as root of namespaces of its own"
    os = __import__("os"); r, w = os.pipe(); pid = os.fork()
    if pid == 0:
        try:
            if __import__("ctypes").CDLL(None).unshare(flags): raise OSError("unshare")
            out = str(eval(expr))
        except BaseException as e: out = name(e)
        os.write(w, out.encode()); os._exit(0)
    os.close(w); out = os.read(r, 999).decode(); os.close(r); os.waitpid(pid, 0); return out
def SO(*a, **k):
    "makes a socket and says so"
    socket.socket(*a).close(); return "made"
`

// siblings are more of each kind of the list's sections D, E, G and H. What is about
// the gateway alone, and not about the box's own kernel, is tried from one box of each
// tier and by each user, and not from all four.
func siblings(u harness.User, tier box.TierName) []attack {
	const (
		passed  = `^record 22$`
		refused = `^(closed|ConnectionResetError|BrokenPipeError)$`
		bad     = `^HTTP/1.1 [45]`
		early   = `^HTTP/1.1 (4|200)` // the world answers a head at once
		no      = `(Error$|^timeout$)`
	)
	hello := func(what, deny string) attack {
		return attack{id: "D", what: what, deny: deny, denied: refused, quiet: spoke}
	}
	control := func(what, allow string) attack {
		return attack{id: "D", what: what, deny: `P(RC(HM(b"evil.example.net")))`, denied: refused, quiet: spoke, allow: allow, allowed: passed}
	}
	request := func(id, what, deny, never string) attack {
		return attack{id: id, what: what, deny: deny, denied: bad, never: never}
	}
	path := func(what, path string) attack {
		return attack{id: "E58", what: what, deny: fmt.Sprintf("G(%q)", path), denied: `^HTTP/1.1 (400|403)`}
	}
	other := func(what, deny, denied string) attack {
		return attack{id: "G83", what: what, deny: deny, denied: denied}
	}
	all := []attack{
		// D: the hello, in every form.
		control("a hello as it should be", `P(RC(HM()))`),
		control("one byte a record", `P(RC(HM(), 1))`),
		control("one byte a packet", `P(RC(HM()), parts=1)`),
		control("capital letters", `P(RC(HM(b"API.example.COM")))`),
		control("a record version of SSL 3", `P(RC(HM(), ver=b"\3\0"))`),
		control("much padding", `P(RC(HM(ext=X(21, b"\0" * 9000))))`),
		hello("an empty record before it", `P(RC(b"", 1) + b"\x16\3\1\0\0" + RC(HM()))`),
		hello("an empty record inside of it", `P(RC(HM()[:9]) + b"\x16\3\1\0\0" + RC(HM()[9:]))`),
		hello("an alert before it", `P(RC(b"\1\0", kind=21) + RC(HM()))`),
		hello("an alert inside of it", `P(RC(HM()[:9]) + RC(b"\1\0", kind=21) + RC(HM()[9:]))`),
		hello("a change of ciphers inside of it", `P(RC(HM()[:9]) + RC(b"\1", kind=20) + RC(HM()[9:]))`),
		hello("an empty message of the handshake before it", `P(RC(b"\0\0\0\0" + HM()))`),
		hello("two hellos in one record", `P(RC(HM() + HM(b"evil.example.net")))`),
		hello("a record larger than TLS has", `P(b"\x16\3\1\x48\1" + HM(ext=X(21, b"\0" * 18000)))`),
		hello("SSL 2", `P(b"\x80\x2e\1\0\2\0\x15\0\0\0\x10\1\0\x80\7\0\xc0" + b"c" * 40)`),
		hello("a record version of no TLS", `P(RC(HM(), ver=b"\2\0"))`),
		hello("DTLS", `P(b"\x16\xfe\xfd" + b"\0" * 8 + V(2, HM()))`),
		hello("two names", `P(RC(HM(names=[(0, b"api.example.com"), (0, b"evil.example.net")])))`),
		hello("two names, the other way round", `P(RC(HM(names=[(0, b"evil.example.net"), (0, b"api.example.com")])))`),
		hello("a name of another type beside it", `P(RC(HM(names=[(1, b"evil.example.net"), (0, b"api.example.com")])))`),
		hello("a name of another type", `P(RC(HM(names=[(7, b"api.example.com")])))`),
		hello("a list of no names", `P(RC(HM(names=[])))`),
		hello("an empty name", `P(RC(HM(b"")))`),
		hello("an extension without a list", `P(RC(HM(None, ext=X(0))))`),
		hello("the extension twice, with one name", `P(RC(HM(ext=SN((0, b"api.example.com")))))`),
		hello("the extension twice, with two names", `P(RC(HM(b"evil.example.net", front=SN((0, b"api.example.com")))))`),
		hello("a dot at the end", `P(RC(HM(b"api.example.com.")))`),
		hello("a zero byte", `P(RC(HM(b"api.example.com\0")))`),
		hello("a zero byte and another name", `P(RC(HM(b"api.example.com\0.evil.example.net")))`),
		hello("a space", `P(RC(HM(b" api.example.com")))`),
		hello("a port", `P(RC(HM(b"api.example.com:443")))`),
		hello("an address", `P(RC(HM(b"`+goodAddr+`")))`),
		hello("the synthetic address", `P(RC(HM(A("api.example.com").encode())))`),
		hello("a wildcard", `P(RC(HM(b"*.example.com")))`),
		hello("a name below", `P(RC(HM(b"x.api.example.com")))`),
		hello("the parent", `P(RC(HM(b"example.com")))`),
		hello("wide letters", `P(RC(HM("\uff41pi.example.com".encode())))`),
		hello("a Kelvin sign where a k would be", `P(RC(HM("\u212a.wild.example.com".encode())), "k.wild.example.com")`),
		hello("a name of 300 bytes", `P(RC(HM(b"a" * 300)))`),
		hello("a list that is longer than its extension", `P(RC(HM(None, ext=X(0, b"\0\x20\0" + V(2, b"api.example.com")))))`),
		hello("bytes behind the name", `P(RC(HM(None, ext=X(0, V(2, b"\0" + V(2, b"api.example.com")) + b"x"))))`),
		hello("bytes behind the extensions", `P(RC(HM(tail=b"x")))`),
		hello("no extensions", `P(RC(b"\1" + V(3, b"\3\3" + b"r" * 32 + b"\0" + V(2, b"\xc0\x2b") + V(1, b"\0"))))`),
		hello("compression alone", `P(RC(HM(comp=b"\1")))`),
		hello("no ciphers", `P(RC(HM(suites=b"")))`),
		hello("ciphers without encryption", `P(RC(HM(suites=b"\0\1\0\2\0\x3b")))`),
		hello("ciphers that nobody knows and anonymous ones", `P(RC(HM(suites=b"\0\x34\xc0\x18\x0a\x0a")))`),
		hello("TLS 1.1 by the old field", `P(RC(HM(ver=b"\3\2")))`),
		hello("versions of which none is known", `P(RC(HM(ext=X(43, V(1, b"\x7f\x1c\x0a\x0a")))))`),
		hello("an encrypted hello at the front", `P(RC(HM(front=X(0xfe0d, b"\0\0\1\0\1\0\0\0\0\0"))))`),
		hello("an encrypted hello at the end", `P(RC(HM(ext=X(0xfe0d, b"\1"))))`),
		hello("an encrypted name of a draft", `P(RC(HM(ext=X(0xffce, b"\x13\1\0\x1d\0\0"))))`),
		hello("an encrypted hello of a draft", `P(RC(HM(ext=X(0xfe09, b"\0"))))`),
		hello("what is outside of an encrypted hello", `P(RC(HM(ext=X(0xfd00, b"\2\0\0"))))`),
		hello("SMTP", `P(b"EHLO evil.example.net\r\n")`),
		hello("SOCKS", `P(b"\5\1\0")`),
		hello("a line for proxies", `P(b"PROXY TCP4 10.0.0.1 10.0.0.2 1 443\r\n" + RC(HM()))`),
		hello("a line for proxies, in binary", `P(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + b"\0" * 12 + RC(HM()))`),
		hello("a request for TLS from a database", `P(struct.pack(">II", 8, 80877103))`),
		{id: "D", what: "TLS to a port for plain HTTP", deny: `P(RC(HM()), port=80)`, denied: `^(closed|ConnectionResetError|record 72)$`},
		{id: "D", what: "a second hello once the first is answered", deny: `TWO(RC(HM()), RC(HM(b"evil.example.net")))`, denied: `^(record 21|closed|ConnectionResetError)$`, quiet: spoke},
		{id: "D", what: "TLS to a port for SSH, which is raw", deny: `C("ssh.example.com", 443)`, denied: reset, allow: `R("ssh.example.com", 22, b"\x16\3\1")`, allowed: `SSH-2.0-world`},

		// E: the target.
		request("E52", "a user before the host", `Q("GET http://api.example.com@evil.example.net/public/ok HTTP/1.1")`, "/public/ok"),
		request("E52", "another port in the line", `Q("GET http://api.example.com:8080/public/ok HTTP/1.1")`, "/public/ok"),
		request("E52", "another scheme", `Q("GET https://api.example.com/public/ok HTTP/1.1")`, "/public/ok"),
		request("E52", "FTP", `Q("GET ftp://api.example.com/public/ok HTTP/1.1")`, "/public/ok"),
		request("E52", "no scheme", `Q("GET //evil.example.net/public/ok HTTP/1.1")`, "ok"),
		request("E52", "a host without slashes", `Q("GET api.example.com/public/ok HTTP/1.1")`, "/public/ok"),
		request("E52", "a fragment", `Q("GET /public/ok#/../../secret HTTP/1.1")`, "/public/ok"),
		request("E52", "a star", `Q("OPTIONS * HTTP/1.1")`, "OPTIONS"),
		request("E51", "a host with a user", `G("/public/ok", host="evil.example.net@api.example.com")`, "/public/ok"),
		request("E51", "a list of hosts", `G("/public/ok", host="api.example.com, evil.example.net")`, "/public/ok"),
		request("E51", "a host with a space", `G("/public/ok", host="api.example.com evil.example.net")`, "/public/ok"),
		request("E51", "an empty host", `G("/public/ok", host="")`, "/public/ok"),
		request("E51", "a host by its address", `G("/public/ok", host="`+goodAddr+`")`, "/public/ok"),
		request("E51", "a host with an empty port", `G("/public/ok", host="api.example.com:")`, "/public/ok"),
		request("E51", "a port with a zero", `G("/public/ok", host="api.example.com:080")`, "/public/ok"),
		request("E51", "another host that is allowed", `G("/public/ok", host="open.example.com")`, "/public/ok"),
		request("E51", "no host", `H(b"GET /public/ok HTTP/1.1\r\n\r\n")`, "/public/ok"),
		request("E51", "no host in HTTP/1.0", `H(b"GET /public/ok HTTP/1.0\r\n\r\n")`, "/public/ok"),
		{id: "E51", what: "the host in capitals", deny: `G("/public/ok", host="EVIL.example.net")`, denied: bad, allow: `G("/public/ok", host="API.EXAMPLE.COM:80")`, allowed: http2, arrives: `Host: api.example.com\\r`},

		// E: framing.
		request("E53", "a list of lengths", `Q("POST /public/up HTTP/1.1", "Content-Length: 4, 4\r\n", body=b"body")`, "body"),
		request("E53", "the same length twice", `Q("POST /public/up HTTP/1.1", "Content-Length: 4\r\nContent-Length: 4\r\n", body=b"body")`, "body"),
		request("E53", "a length with a sign", `Q("POST /public/up HTTP/1.1", "Content-Length: +4\r\n", body=b"body")`, "body"),
		request("E53", "a length that is less than nothing", `Q("POST /public/up HTTP/1.1", "Content-Length: -4\r\n", body=b"body")`, "body"),
		request("E53", "a length in hexadecimal digits", `Q("POST /public/up HTTP/1.1", "Content-Length: 0x4\r\n", body=b"body")`, "body"),
		request("E53", "a length with a space in it", `Q("POST /public/up HTTP/1.1", "Content-Length: 1 0\r\n", body=b"body")`, "body"),
		request("E53", "an empty length", `Q("POST /public/up HTTP/1.1", "Content-Length: \r\n", body=b"body")`, "body"),
		request("E53", "a length with a space before the colon", `Q("POST /public/up HTTP/1.1", "Content-Length : 4\r\n", body=b"body")`, "body"),
		request("E53", "a length that looks like one to CGI", `Q("POST /public/up HTTP/1.1", "Content_Length: 4\r\n", body=b"body")`, "body"),
		request("E55", "an encoding that looks like one to CGI", `Q("POST /public/up HTTP/1.1", "Transfer.Encoding: chunked\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")`, "body"),
		request("E55", "an encoding with a tab before the colon", `Q("POST /public/up HTTP/1.1", "Transfer-Encoding\t: chunked\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")`, "body"),
		request("E55", "an encoding behind a vertical tab", `Q("POST /public/up HTTP/1.1", "Transfer-Encoding:\x0bchunked\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")`, "body"),
		request("E55", "an encoding on a folded line", `Q("POST /public/up HTTP/1.1", "Transfer-Encoding:\r\n chunked\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")`, "body"),
		request("E55", "an encoding in HTTP/1.0", `Q("POST /public/up HTTP/1.0", "Transfer-Encoding: chunked\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")`, "body"),
		request("E63", "Connection names the length", `Q("POST /public/up HTTP/1.1", "Connection: close, content-length\r\nContent-Length: 4\r\n", body=b"body")`, "body"),
		request("E63", "Connection names the encoding", `Q("POST /public/up HTTP/1.1", "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", body=b"4\r\nbody\r\n0\r\n\r\n")`, "body"),
		{id: "E56", what: "chunks with bare line feeds", deny: `CH(b"4\nbody\n0\n\n")`, denied: early, quiet: spoke, never: "body", allow: `CH(b"4;a=b\r\nbody\r\n0\r\nX: y\r\n\r\n")`, allowed: http2, arrives: `body`},
		{id: "E56", what: "a chunk's size with a space", deny: `CH(b"4 \r\nbody\r\n0\r\n\r\n")`, denied: early, quiet: spoke, never: "body"},
		{id: "E56", what: "a chunk's size with 0x", deny: `CH(b"0x4\r\nbody\r\n0\r\n\r\n")`, denied: early, quiet: spoke, never: "body"},
		{id: "E56", what: "a chunk's size with a sign", deny: `CH(b"+4\r\nbody\r\n0\r\n\r\n")`, denied: early, quiet: spoke, never: "body"},
		{id: "E56", what: "a chunk's size beyond 64 bits", deny: `CH(b"10000000000000004\r\nbody\r\n0\r\n\r\n")`, denied: early, quiet: spoke, never: "body"},
		{id: "E56", what: "a chunk that is longer than it says", deny: `CH(b"3\r\nbody\r\n0\r\n\r\n")`, denied: early, quiet: spoke, never: "0\r\n\r\n"},
		{id: "E56", what: "a chunk's extension with a line feed", deny: `CH(b"4;a\nb\r\nbody\r\n0\r\n\r\n")`, denied: early, quiet: spoke, never: "body"},
		{id: "E65", what: "a body where the rule only reads", deny: `Q("GET /public/ok HTTP/1.1", "Content-Length: 4\r\n", body=b"body")`, denied: `^HTTP/1.1 403`, allow: `Q("GET /public/ok HTTP/1.1", "Content-Length: 0\r\n")`, allowed: http2},
		{id: "E57", what: "a request in the body of another: the upstream is told to close behind it", deny: `Q("POST /public/up HTTP/1.1", "Content-Length: 34\r\n", body=b"DELETE /x HTTP/1.1\r\nHost: evil\r\n\r\n")`, denied: `^HTTP/1.1 200`, quiet: anything, allow: `Q("POST /public/up HTTP/1.1", "Content-Length: 4\r\n", body=b"body")`, allowed: http2, arrives: `Connection: close\\r\\n\\r\\n`},
		request("E57", "what follows a body is a request of its own", `Q("GET /public/none HTTP/1.1", "Content-Length: 0\r\nX: \0\r\n")`, "none"),

		// E: methods, versions, fields.
		request("E61", "an upgrade to WebSocket", `Q("GET /public/ok HTTP/1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n")`, "/public/ok"),
		request("E61", "an upgrade to TLS", `Q("GET /public/ok HTTP/1.1", "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n")`, "/public/ok"),
		request("E61", "an upgrade that Connection does not name", `Q("GET /public/ok HTTP/1.1", "Upgrade: h2c\r\n")`, "/public/ok"),
		request("E59", "CONNECT to its own host", `Q("CONNECT api.example.com:443 HTTP/1.1")`, "CONNECT"),
		request("E59", "CONNECT with a path", `Q("CONNECT /public/ok HTTP/1.1")`, "/public/ok"),
		request("E64", "a method of WebDAV", `Q("PROPFIND /public/ok HTTP/1.1")`, "/public/ok"),
		request("E64", "a method for caches", `Q("PURGE /public/ok HTTP/1.1")`, "/public/ok"),
		request("E64", "a method for tunnels", `Q("DEBUG /public/ok HTTP/1.1")`, "/public/ok"),
		request("E64", "a method behind a line", `H(b"\r\nDELETE /public/ok HTTP/1.1\r\nHost: api.example.com\r\n\r\n")`, "/public/ok"),
		request("E64", "a method with a tab", `Q("GET\t/public/ok HTTP/1.1")`, "/public/ok"),
		request("E64", "a method in the query", `Q("POST /public/up?_method=DELETE HTTP/1.1", "Content-Length: 0\r\n")`, "_method"),
		request("E64", "HTTP/0.9", `H(b"GET /public/ok\r\n\r\n")`, "/public/ok"),
		request("E64", "HTTP/2 by its number", `Q("GET /public/ok HTTP/2.0")`, "/public/ok"),
		request("E64", "a version in small letters", `Q("GET /public/ok http/1.1")`, "/public/ok"),
		{id: "E64", what: "more fields that override: none arrives", deny: `Q("GET /public/over2 HTTP/1.1", "X.HTTP.Method.Override: DELETE\r\nX-Forwarded-Method: DELETE\r\nX-Override-URL: /Override\r\nX_Forwarded_Host: Override\r\n")`, denied: `^HTTP/1.1 200`, quiet: anything, never: "verride"},
		request("E56", "a field without a name", `Q("GET /public/ok HTTP/1.1", ": x\r\n")`, "/public/ok"),
		request("E56", "a field without a colon", `Q("GET /public/ok HTTP/1.1", "X-A\r\n")`, "/public/ok"),
		request("E56", "a field's name with a byte of 8 bits", `Q("GET /public/ok HTTP/1.1", "X\x85A: b\r\n")`, "/public/ok"),
		request("E56", "a carriage return alone in a field", `Q("GET /public/ok HTTP/1.1", "X-A: b\rX-B: c\r\n")`, "/public/ok"),
		request("E56", "a carriage return too many", `Q("GET /public/ok HTTP/1.1", "X-A: b\r\r\n")`, "/public/ok"),
		request("E56", "a zero byte in a field", `Q("GET /public/ok HTTP/1.1", "X-A: b\0c\r\n")`, "/public/ok"),
		request("E65", "another expectation", `Q("POST /public/up HTTP/1.1", "Expect: 200-ok\r\nContent-Length: 4\r\n", body=b"body")`, "body"),

		// E: paths.
		path("dots in segments with parameters", "/public/;x/..;y/secret"),
		path("dots with a space", "/public/..%20/secret"),
		path("dots with an encoded question mark", "/public/..%3fx"),
		path("dots with an encoded hash", "/public/..%23/x"),
		path("dots under marks", "/public/..%cc%b8/x"),
		path("three dots", "/public/.../secret"),
		path("dots twice encoded", "/public/%252e%252e/secret"),
		path("dots encoded as some servers do", "/public/%u002e%u002e/secret"),
		path("wide dots", "/public/%EF%BC%8E%EF%BC%8E/secret"),
		path("a wide slash", "/public/..%EF%BC%8Fsecret"),
		path("an overlong slash", "/public/..%c0%afsecret"),
		path("half of a character", "/public/%e2%82"),
		path("a line break", "/public/ok%0d%0aX:%20y"),
		path("bytes of 8 bits", "/public/\u00ff"),
		path("above the root", "/../../public/ok"),
		path("a percent sign alone", "/public/%"),
		path("an encoded backslash", "/public/..%5csecret"),
		path("a denied path with a parameter", "/public/secret;v=1/x"),
		path("a denied path with a dot at its end", "/public/secret./x"),
		path("a denied path with an encoded question mark", "/public/secret%3Fx"),
		path("a denied path in wide letters", "/public/%EF%BD%93ecret/x"),
		path("a denied path with a hyphen that is not seen", "/public/sec%C2%ADret/x"),
		path("a denied path as a stream", "/public/secret::$DATA"),
		path("a denied path by a detour", "/x/../public/./secret/x"),

		// G: other ways out, as whoever the program is.
		other("datagrams to all", `(lambda s: (s.setsockopt(1, 6, 1), s.settimeout(0.4), s.sendto(b"x", ("255.255.255.255", 9)), s.recv(9)))(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))`, no),
		other("datagrams to all neighbours of version 6", `(lambda s: (s.settimeout(0.4), s.sendto(b"x", ("ff02::1", 9, 0, socket.if_nametoindex("eth0") if 0 else 2)), s.recv(9)))(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))`, no),
		other("UDP-Lite", `(lambda s: (s.settimeout(0.4), s.sendto(b"x", ("`+goodAddr+`", 53)), s.recv(9)))(socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136))`, no),
		other("DCCP", `socket.socket(socket.AF_INET, 6, 33).connect(("`+goodAddr+`", 80))`, no),
		other("MPTCP to a name that is allowed by nobody", `socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(("`+goodAddr+`", 443))`, no),
		other("sockets of the hypervisor", `(lambda s: (s.settimeout(1), s.connect((2, 1024))))(socket.socket(40, socket.SOCK_STREAM))`, no),
		other("an address for the interface", `__import__("fcntl").ioctl(socket.socket(), 0x8916, struct.pack("16sHH4s8x", b"eth0", 2, 0, socket.inet_aton("198.18.0.9")))`, no),
		other("a hardware address for the interface", `__import__("fcntl").ioctl(socket.socket(), 0x8924, struct.pack("16sH14x", b"eth0", 1))`, no),
		other("another route", `__import__("fcntl").ioctl(socket.socket(), 0x890b, b"\0" * 120)`, no),
		other("a device for tunnels", `__import__("fcntl").ioctl(__import__("os").open("/dev/net/tun", 2), 0x400454ca, struct.pack("16sH22x", b"tun7", 1))`, no),
		other("another network namespace", `__import__("ctypes").CDLL(None, use_errno=True).unshare(0x40000000) == 0 and "done" or "OSError"`, no),
		other("packets in a user namespace", `IN(0x10000000, "socket.socket(17, 3, 0)")`, no),
		other("raw packets in a user namespace", `IN(0x10000000, "socket.socket(2, 3, 255)")`, no),
		other("the interface moved to another network namespace", `MV()`, no),
		other("the same in a user namespace", `IN(0x10000000, "MV()")`, no),
		other("the interface turned off in a user namespace", `IN(0x10000000, "NL(16, struct.pack('BxHiII', 0, 0, 2, 0, 1))")`, no),
		other("an address in a user namespace", `IN(0x10000000, "NL(20, struct.pack('BBBBI', 2, 32, 0, 0, 2) + struct.pack('HH4s', 8, 2, b'\xc6\x12\0\x09'))")`, no),
		other("a bridge", `NL(16, struct.pack("BxHiII", 0, 0, 0, 0, 0) + struct.pack("HH4s", 8, 3, b"br0") + struct.pack("HH", 16, 18) + struct.pack("HH8s", 12, 1, b"bridge"))`, no),
		other("the interface taken into another network namespace", `IN(0x50000000, "MV()")`, no),
		other("the network namespace of the first process", `open("/proc/1/ns/net").fileno() and __import__("ctypes").CDLL(None).setns(open("/proc/1/ns/net").fileno(), 0) == 0 and "done" or "OSError"`, no),
		other("a source address of its own choice", `(lambda s: (s.settimeout(1), s.bind(("198.18.7.7", 0)), s.connect(("`+goodAddr+`", 443))))(socket.socket())`, no),
		other("an address from anywhere", `(lambda s: (s.settimeout(1), s.setsockopt(0, 15, 1), s.bind(("`+goodAddr+`", 0)), s.connect(("198.18.0.1", 53)), "spoofed")[-1])(socket.socket())`, no),
		{id: "G83", what: "data in the first packet", tier: box.TierProcess, deny: `(lambda s: (s.settimeout(2), s.sendto(b"first", 0x20000000, ("` + goodAddr + `", 443)), s.recv(9)))(socket.socket())`, denied: no,
			allow: `(lambda s: (s.sendto(RC(HM()), 0x20000000, (A("api.example.com"), 443)), "record %d" % s.recv(9)[0])[-1])(socket.socket())`, allowed: passed},
		{id: "G83", what: "urgent bytes, which are bytes", deny: `(lambda s: (s.send(b"GET /public/up HTTP/1.1\r\nHost: api.example.com\r\nX: "), s.send(b"\r", socket.MSG_OOB), s.send(b"y\r\n\r\n"), s.recv(99).decode()[:12])[-1])(K("api.example.com", 80))`, denied: `^HTTP/1.1 400|Error$|^timeout$`, quiet: spoke, never: "/public/up"},

		// H: what an allowed host may be sent.
		request("H100", "data in a query beyond its bound", `G("/public/ok?q=" + "d" * 3000)`, "dddd"),
		request("H100", "data in one field beyond the bound", `G("/public/ok", more="Cookie: " + "d" * 9000 + "\r\n")`, "dddd"),
		request("H100", "data in many fields beyond the bound", `G("/public/ok", more="".join("X-%d: %s\r\n" % (i, "d" * 200) for i in range(60)))`, "dddd"),
		request("H100", "data in fields' names", `G("/public/ok", more="".join("X-%s%d: a\r\n" % ("d" * 200, i) for i in range(60)))`, "dddd"),
		request("H100", "data in a method", `Q("D" * 3000 + " /public/ok HTTP/1.1")`, "DDDD"),
		request("H93", "writing with PUT", `G("/public/ok", "PUT", "Content-Length: 4\r\n", body="data")`, "data"),
		request("H93", "writing with PATCH", `G("/public/ok", "PATCH", "Content-Length: 4\r\n", body="data")`, "data"),
		request("H98", "another path for writing", `G("/public/up/", "POST", "Content-Length: 4\r\n", body="data")`, "data"),
		request("H98", "another path for writing, in capitals", `G("/public/UP", "POST", "Content-Length: 4\r\n", body="data")`, "data"),
	}
	for _, d := range doors() {
		all = append(all, other(d.what, fmt.Sprintf("SO(%d, %d, %d)", d.family, d.kind, d.protocol), no))
	}
	if (u == harness.Root || u == harness.Root.Trusting()) == (tier == box.TierGvisor) {
		return all
	}
	return slices.DeleteFunc(all, func(a attack) bool { return a.id[0] != 'G' })
}

// door is a kind of socket that a box must not have.
type door struct {
	what                   string
	family, kind, protocol int
}

func doors() []door {
	return []door{
		{"raw ICMP", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP},
		{"raw IPIP", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_IPIP},
		{"raw GRE", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_GRE},
		{"raw TCP", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_TCP},
		{"raw packets with heads of their own", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW},
		{"raw ICMP of version 6", syscall.AF_INET6, syscall.SOCK_RAW, syscall.IPPROTO_ICMPV6},
		{"frames", syscall.AF_PACKET, syscall.SOCK_RAW, 0x0300},
		{"packets below IP", syscall.AF_PACKET, syscall.SOCK_DGRAM, 0x0300},
		{"packets by the old type", syscall.AF_INET, syscall.SOCK_PACKET, 0x0300},
		{"netfilter", syscall.AF_NETLINK, syscall.SOCK_RAW, syscall.NETLINK_NETFILTER},
		{"keys of IPsec", syscall.AF_KEY, syscall.SOCK_RAW, 2},
		{"ciphers of the kernel's", syscall.AF_ALG, syscall.SOCK_SEQPACKET, 0},
		{"Bluetooth", syscall.AF_BLUETOOTH, syscall.SOCK_RAW, 1},
		{"CAN", syscall.AF_CAN, syscall.SOCK_RAW, 1},
		{"TIPC", syscall.AF_TIPC, syscall.SOCK_SEQPACKET, 0},
		{"the express data path", 44, syscall.SOCK_RAW, 0},
		{"SMC", 43, syscall.SOCK_STREAM, 0},
		{"phones", syscall.AF_PHONET, syscall.SOCK_DGRAM, 0},
		{"RDS", syscall.AF_RDS, syscall.SOCK_SEQPACKET, 0},
		{"QIPCRTR", 42, syscall.SOCK_DGRAM, 0},
	}
}

// The control of what boxes are denied: outside of one, root has these sockets, as far
// as this host's kernel has them, and its datagrams come to the world.
func TestOutsideOfABoxOtherChannelsAreOpen(t *testing.T) {
	f := theWorld(t)
	open := 0
	for _, d := range doors() {
		fd, err := syscall.Socket(d.family, d.kind, d.protocol)
		switch {
		case err == nil:
			open++
			_ = syscall.Close(fd)
		case errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EPROTONOSUPPORT), errors.Is(err, syscall.ESOCKTNOSUPPORT):
			t.Logf("this host's kernel has no %s", d.what)
		default:
			t.Errorf("%s: %v", d.what, err)
		}
	}
	if open < 9 {
		t.Errorf("%d kinds of sockets are open outside", open)
	}
	for _, to := range []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(goodAddr), 443), netip.AddrPortFrom(netip.MustParseAddr(goodAddr6), 5353)} {
		settle(t, f)
		c, err := net.Dial("udp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("%v: %v", to, err)
		}
		arrives(t, f, "packet "+regexp.QuoteMeta(to.Addr().String()))
		c.Close()
	}
}
