package egress

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

// policyText is what most cases are tried under.
const policyText = `
version: 1
limits: { conns: 64, url_bytes: 2KiB, header_bytes: 8KiB }
hosts:
  - { name: api, host: api.example.com, tls: splice }
  - { name: wild, host: "*.wild.example.com", tls: splice }
  - { name: bad, host: bad.wild.example.com, decide: deny }
  - { name: to, host: "*.to.example.com", tls: splice }
  - { name: six, host: six.example.com, tls: splice }
  - name: plain
    host: api.example.com
    port: 80
    rules:
      - { name: read, methods: [GET, HEAD], paths: ["/public/**", "/slow"] }
      - { name: post, methods: [POST], paths: ["/public/up"] }
      - { name: secret, paths: ["/public/secret/**"], decide: deny }
  - { name: open, host: open.example.com, port: 80 }
  - { name: alt, host: api.example.com, port: 8080, protocol: http }
  - { name: ssh, host: ssh.example.com, port: 22, protocol: tcp }
  - { name: raw, host: raw.example.com, port: 5432, protocol: tcp }
  - { name: db, host: db.example.com, port: 5432, protocol: tcp, cidr: 10.20.30.0/24, sink: internal }
  - { name: dbout, host: dbout.example.com, port: 5432, protocol: tcp, cidr: 10.20.30.0/24, sink: internal }
  - { name: net, cidr: 10.20.31.0/24, port: 6379, protocol: tcp, sink: internal }
  - { host: meta.example.com, tls: splice }
  - { host: loop.example.com, tls: splice }
  - { host: priv.example.com, tls: splice }
  - { host: mixed.example.com, port: 5432, protocol: tcp }
  - { host: cname.example.com, tls: splice }
  - { host: flip.example.com, port: 5432, protocol: tcp }
  - { host: fail.example.com, tls: splice }
  - { host: hang.example.com, tls: splice }
  - { host: mapped.example.com, tls: splice }
  - { host: nat64.example.com, tls: splice }
  - { host: nat-good.example.com, port: 5432, protocol: tcp }
  - { host: nat-meta.example.com, port: 5432, protocol: tcp }
  - { host: nat-priv.example.com, port: 5432, protocol: tcp }
  - { host: sixtofour.example.com, tls: splice }
  - { host: self.example.com, tls: splice }
  - { host: zero.example.com, tls: splice }
  - { host: doc.example.com, tls: splice }
  - { host: cgnat.example.com, tls: splice }
  - { host: bench.example.com, tls: splice }
  - { host: gone.example.com, tls: splice }
`

// quiet says what a denial may cause in the world.
type quiet int

const (
	silent   quiet = iota // no packet
	asked                 // questions to the resolver, and no other packet
	spoke                 // connections to the allowed host, which get nothing of what is denied
	anything              // not looked at
)

// attack is one case. The list's numbers are those of docs/hostile.md's kin: one kind each.
type attack struct {
	id, what string
	deny     string // an expression in the box
	denied   string // what it has to say
	allow    string // its control
	allowed  string
	arrives  string // a regular expression for something that the control brings to the world; empty = an answer is enough
	quiet    quiet
	// never is text that may not reach the world by the denial.
	never string
	needs string       // what is not built yet
	tier  box.TierName // the only one whose boxes can try it; empty = both
}

const (
	nx    = `^(gaierror|rcode 3, 0 answers)$`
	reset = `^(ConnectionRefusedError|ConnectionResetError|timeout|closed|OSError)$`
	lost  = `^timeout$`
	hello = `hello`
	http2 = `^HTTP/1.1 200`
)

func attacks() []attack {
	get := func(path string) string { return fmt.Sprintf("G(%q)", path) }
	ok := get("/public/ok")
	all := []attack{
		// A: names.
		{id: "A1", what: "a name that ends alike", deny: `D("evil-wild.example.com")`, denied: nx, allow: `D("a.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A1", what: "an allowed name as a prefix", deny: `D("api.example.com.evil.net")`, denied: nx, allow: `D("api.example.com")`, allowed: `rcode 0, 1`},
		{id: "A1", what: "the apex of a wildcard", deny: `D("wild.example.com")`, denied: nx, allow: `D("x.y.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A3", what: "two dots at the end", deny: `D("api.example.com", raw=b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\3api\7example\3com\0\0\0\1\0\1\0")[:0] or tries(lambda: A("api.example.com.."))`, denied: `^(gaierror|UnicodeError|UnicodeEncodeError)$`, allow: `D("API.ExAmPlE.com")`, allowed: `rcode 0, 1`},
		{id: "A4", what: "punycode that is none", deny: `D("xn--a.wild.example.com")`, denied: `^rcode (3|1), 0`, allow: `D("xn--bcher-kva.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A5", what: "digits in circles", deny: `D("\xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.0.0.1")`, denied: `^rcode (3|1), 0`, allow: `D("1.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A7", what: "a percent sign", deny: `D("%61pi.wild.example.com")`, denied: `^rcode (3|1), 0`, allow: `D("api.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A7", what: "a comma", deny: `D("api,x.wild.example.com")`, denied: `^rcode (3|1), 0`, allow: `D("api-x.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A8", what: "a zero byte", deny: `D("a\0b.wild.example.com")`, denied: `^rcode (3|1), 0`, allow: `D("a-b.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A8", what: "a line break", deny: `D("a\r\nb.wild.example.com")`, denied: `^rcode (3|1), 0`, allow: `D("ab.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A9", what: "a name of 254 bytes", deny: `D(".".join(["a"*63]*3 + ["a"*46]) + ".wild.example.com")`, denied: `^(rcode (3|1), 0 answers|timeout)$`, allow: `D("a"*63 + ".wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A10", what: "a last label of digits", deny: `D("1.2.3")`, denied: nx, allow: `D("1.2.3.wild.example.com")`, allowed: `rcode 0, 1`},
		{id: "A10", what: "a last label of hexadecimal digits", deny: `D("0x7f.1")`, denied: nx},
		{id: "A11", what: "another port of an allowed name", deny: `C("api.example.com", 22)`, denied: reset, allow: `C("api.example.com", 443)`, allowed: `^connected`, arrives: `conn 93.184.215.14:443`},
		{id: "A11", what: "yet another", deny: `C("api.example.com", 8443)`, denied: reset, allow: `R("raw.example.com", 5432, b"to the port")`, allowed: `to the port`, arrives: `data 93.184.215.14:5432 "to the port"`},
		{id: "A13", what: "metadata by name", deny: `D("metadata.google.internal")`, denied: nx},
		{id: "A13", what: "the host by a name of containers", deny: `D("host.docker.internal")`, denied: nx},
		{id: "A13", what: "localhost, which never leaves the box", deny: `D("localhost")`, denied: nx, allow: `tries(lambda: socket.gethostbyname("localhost"))`, allowed: `^127\.`},
		{id: "A", what: "a denied name below a wildcard", deny: `D("bad.wild.example.com")`, denied: nx, allow: `T("good.wild.example.com")`, allowed: hello, arrives: `data 93.184.215.14:443 .*GET /tls`},

		// B: addresses.
		{id: "B15", what: "an address as a number", deny: `C("2130706433", 443)`, denied: reset},
		{id: "B15", what: "zero", deny: `C("0", 80)`, denied: `.`, quiet: silent},
		{id: "B16", what: "a name with a mapped address", deny: `C("mapped.example.com", 443)`, denied: reset, quiet: asked, allow: `C("six.example.com", 443)`, allowed: `^connected`, arrives: `conn \[2606:2800:21f::14\]:443`},
		{id: "B17", what: "a name with an address for NAT64", deny: `C("nat64.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B17", what: "metadata by a prefix for NAT64 that is this network's own", deny: `R("nat-meta.example.com", 5432, b"credentials")`, denied: reset, quiet: asked, allow: `R("nat-good.example.com", 5432, b"translated")`, allowed: `translated`, arrives: `data \[2606:64:64::5db8:d70e\]:5432 "translated"`},
		{id: "B17", what: "a private address by such a prefix", deny: `R("nat-priv.example.com", 5432, b"inside")`, denied: reset, quiet: asked, allow: `R("db.example.com", 5432, b"by its network")`, allowed: `by its network`, arrives: `data 10.20.30.40:5432 "by its network"`},
		{id: "B17", what: "a name with an address of 6to4", deny: `C("sixtofour.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B19", what: "a name with an address of carriers", deny: `C("cgnat.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B19", what: "a name with an address of our own range", deny: `C("bench.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B19", what: "a name with an address of documentation", deny: `C("doc.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B19", what: "a name with address zero", deny: `C("zero.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B20", what: "a name with this host's address", deny: `C("self.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B20", what: "a name with the loopback's address", deny: `C("loop.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B20", what: "the gateway itself", deny: `C(GW, 443)`, denied: reset, allow: `D("api.example.com")`, allowed: `rcode 0, 1`},
		{id: "B20", what: "this host's address", deny: `C("` + here4 + `", 80)`, denied: reset},
		{id: "B22", what: "an allowed host's address that was not asked for", deny: `T("api.example.com", "` + goodAddr + `")`, denied: reset, allow: `T("api.example.com")`, allowed: hello, arrives: `data 93.184.215.14:443 .*GET /tls`},
		{id: "B22", what: "the same of version 6", deny: `T("six.example.com", "` + goodAddr6 + `")`, denied: reset, allow: `T("six.example.com")`, allowed: hello, arrives: `conn \[2606:2800:21f::14\]:443`},
		{id: "B22", what: "metadata by address", deny: `G("/latest/meta-data/", to="` + metadataAddr + `")`, denied: reset, allow: ok, allowed: http2},
		{id: "B22", what: "metadata of version 6", deny: `C("fd00:ec2::254", 80)`, denied: reset},
		{id: "B", what: "metadata by a name that is allowed", deny: `C("meta.example.com", 443)`, denied: reset, quiet: asked},
		{id: "B", what: "a private address by a name that is allowed", deny: `C("priv.example.com", 443)`, denied: reset, quiet: asked, allow: `R("db.example.com", 5432, b"inside")`, allowed: `inside`, arrives: `data 10.20.30.40:5432 "inside"`},
		{id: "B", what: "an inner host that answers with an outer address", deny: `C("dbout.example.com", 5432)`, denied: reset, quiet: asked},
		{id: "B", what: "an address beside an inner network", deny: `C("10.20.32.40", 6379)`, denied: reset, allow: `R("` + privateAddr2 + `", 6379, b"by address")`, allowed: `by address`, arrives: `data 10.20.31.40:6379 "by address"`},
		{id: "B", what: "another port of an inner network", deny: `C("` + privateAddr2 + `", 5432)`, denied: reset},

		// C: DNS.
		{id: "C25", what: "a denied name that is also connected to", deny: `G("/", to="evil.example.net")`, denied: nx, allow: ok, allowed: http2, arrives: `dns 9.9.9.10 "api.example.com A"|conn 93.184.215.14:80`},
		{id: "C26", what: "text records of an allowed name", deny: `D("api.example.com", 16)`, denied: `^rcode 0, 0`, allow: `D("api.example.com", 28)`, allowed: `rcode 0, 1`},
		{id: "C26", what: "any records", deny: `D("api.example.com", 255)`, denied: `^rcode 0, 0`},
		{id: "C26", what: "null records", deny: `D("api.example.com", 10)`, denied: `^rcode 0, 0`},
		{id: "C26", what: "mail", deny: `D("api.example.com", 15)`, denied: `^rcode 0, 0`},
		{id: "C26", what: "a label below an exact name", deny: `D("secret-data.api.example.com")`, denied: nx},
		{id: "C27", what: "data in a name below a wildcard, which is not asked for until a connect", deny: `D("secret-data-2.wild.example.com")`, denied: `^rcode 0, 1`, never: "secret-data-2", allow: `C("wanted.wild.example.com", 443)`, allowed: `^connected`, arrives: `dns 9.9.9.10 "wanted.wild.example.com`},
		{id: "C28", what: "another resolver, which is answered from here", deny: `D("evil.example.net", server="8.8.8.8")`, denied: nx, allow: `D("api.example.com", server="8.8.8.8")`, allowed: `rcode 0, 1`},
		{id: "C28", what: "another resolver over TCP", deny: `D("evil.example.net", server="8.8.4.4", tcp=True)`, denied: nx, allow: `D("api.example.com", server="8.8.4.4", tcp=True)`, allowed: `rcode 0, 1`},
		{id: "C28", what: "another resolver of version 6", deny: `D("evil.example.net", server="2001:4860:4860::8888")`, denied: nx, allow: `D("api.example.com", server="2001:4860:4860::8888")`, allowed: `rcode 0, 1`},
		{id: "C28", what: "the world's own resolver", deny: `D("evil.example.net", server="` + resolverAddr + `")`, denied: nx},
		{id: "C28", what: "DNS over TLS", deny: `C("` + goodAddr + `", 853)`, denied: reset},
		{id: "C28", what: "multicast DNS", deny: `U("224.0.0.251", 5353)`, denied: `^(timeout|OSError)$`},
		{id: "C28", what: "NetBIOS", deny: `U("` + goodAddr + `", 137)`, denied: lost},
		{id: "C29", what: "DNS over HTTPS is just a host", deny: `D("dns.google")`, denied: nx},
		{id: "C31", what: "an answer that is mixed: what may not be reached is never dialled", deny: `R("mixed.example.com", 5432, b"mixed")`, denied: `mixed`, quiet: anything, never: "conn " + metadataAddr, allow: `R("raw.example.com", 5432, b"pure")`, allowed: `pure`},
		{id: "C24", what: "an answer that flips to metadata", deny: `";".join(R("flip.example.com", 5432, b"flip") for _ in range(4))`, denied: `.`, quiet: anything, never: "conn " + metadataAddr},
		{id: "C32", what: "an alias to an inner name", deny: `C("cname.example.com", 443)`, denied: reset, quiet: asked},
		{id: "C33", what: "a compression loop", deny: `D("", raw=b"\x12\x34\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1")`, denied: `^(rcode 1|timeout)`, allow: `D("api.example.com")`, allowed: `rcode 0, 1`},
		{id: "C33", what: "two questions", deny: `D("", raw=b"\x12\x34\1\0\0\2\0\0\0\0\0\0" + b"\3api\7example\3com\0\0\1\0\1"*2)`, denied: `^(rcode 1|timeout)`},
		{id: "C33", what: "an answer as a question", deny: `D("", raw=b"\x12\x34\x81\0\0\1\0\0\0\0\0\0\3api\7example\3com\0\0\1\0\1", wait=2)`, denied: `^(rcode 1|timeout)`},
		{id: "C33", what: "an update", deny: `D("", raw=b"\x12\x34\x28\0\0\1\0\0\0\0\0\0\3api\7example\3com\0\0\1\0\1")`, denied: `^(rcode [14]|timeout)`},
		{id: "C33", what: "bytes of no kind", deny: `D("", raw=bytes(range(256)) * 4)`, denied: `^(rcode 1|timeout)`},
		{id: "C34", what: "a resolver that fails", deny: `C("fail.example.com", 443)`, denied: reset, quiet: asked},
		{id: "C34", what: "a resolver that hangs", deny: `C("hang.example.com", 443, 12)`, denied: reset, quiet: asked, allow: ok, allowed: http2},
		{id: "C34", what: "a name that does not exist outside", deny: `C("gone.example.com", 443)`, denied: reset, quiet: asked},
		{id: "C35", what: "a record that hands out keys and HTTP/3", deny: `D("api.example.com", 65)`, denied: `^rcode 0, 0`},

		// D: TLS.
		{id: "D37", what: "a hello for another allowed name", deny: `T("api.example.com", "x.wild.example.com")`, denied: reset, quiet: spoke, never: "GET /tls", allow: `T("x.wild.example.com")`, allowed: hello, arrives: `GET /tls`},
		{id: "D37", what: "a hello for a denied name", deny: `T("evil.example.net", "api.example.com")`, denied: reset, quiet: spoke, never: "evil"},
		{id: "D38", what: "a hello without a name", deny: `T(None, "api.example.com")`, denied: reset, quiet: spoke, never: "GET /tls"},
		{id: "D39", what: "another host inside TLS", needs: "inspection"},
		{id: "D40", what: "CONNECT, then a hello for another host", needs: "an explicit CONNECT listener"},
		{id: "D41", what: "a hello for an allowed name with an encrypted one inside", deny: `E(0xfe0d, "api.example.com")`, denied: reset, quiet: spoke, allow: `E(0x7a7a, "api.example.com")`, allowed: `^got b.\\x16`, arrives: `conn 93.184.215.14:443`},
		{id: "D44", what: "an upstream's certificate that is wrong", needs: "inspection"},
		{id: "D45", what: "an upstream that wants a client's certificate", needs: "inspection"},
		{id: "D46", what: "a client that pins its certificates", needs: "inspection"},
		{id: "D47", what: "TLS 1.0 alone", deny: `T("api.example.com", old=True)`, denied: reset, quiet: spoke, never: "GET /tls"},
		{id: "D49", what: "TLS in TLS", needs: "inspection"},
		{id: "D", what: "plain HTTP to a port for TLS", deny: `H(b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", port=443)`, denied: reset, quiet: spoke, never: "GET /"},
		{id: "D", what: "SSH to a port for TLS", deny: `R("api.example.com", 443, b"SSH-2.0-x\r\n")`, denied: `.`, quiet: spoke, never: "SSH-2.0-x", allow: `R("ssh.example.com", 22, b"SSH-2.0-y\r\n")`, allowed: `SSH-2.0-world`, arrives: `SSH-2.0-y`},
		{id: "D43", what: "a hello that does not end", deny: `R("api.example.com", 443, b"\x16\3\1\x40\0" + b"\1\0\xff\xff" + b"x"*17000, 8)`, denied: `^(ConnectionResetError|BrokenPipeError|timeout|got b'')`, quiet: spoke, never: "xxxxxxxx"},

		// E: HTTP/1.
		{id: "E51", what: "two hosts", deny: `G("/public/ok", more="Host: evil.example.net\r\n")`, denied: `^HTTP/1.1 400`, allow: ok, allowed: http2, arrives: `GET /public/ok`},
		{id: "E51", what: "a space before the colon", deny: `H(b"GET /public/ok HTTP/1.1\r\nHost : api.example.com\r\n\r\n")`, denied: `^HTTP/1.1 400`},
		{id: "E52", what: "another host in the line", deny: `H(b"GET http://evil.example.net/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n")`, denied: `^HTTP/1.1 (400|403|421)`, allow: `H(b"GET http://api.example.com/public/abs HTTP/1.1\r\nHost: api.example.com\r\n\r\n")`, allowed: http2, arrives: `GET /public/abs HTTP/1.1`},
		{id: "E52", what: "another host in the field", deny: `G("/public/ok", host="evil.example.net")`, denied: `^HTTP/1.1 (400|403|421)`},
		{id: "E53", what: "both lengths", deny: `G("/public/up", "POST", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", body="0\r\n\r\n")`, denied: `^HTTP/1.1 400`, allow: `G("/public/up", "POST", "Content-Length: 4\r\n", body="body")`, allowed: http2, arrives: `POST /public/up`},
		{id: "E53", what: "two lengths", deny: `G("/public/up", "POST", "Content-Length: 4\r\nContent-Length: 5\r\n", body="body")`, denied: `^HTTP/1.1 400`},
		{id: "E55", what: "a coding that is nearly chunked", deny: `G("/public/up", "POST", "Transfer-Encoding: xchunked\r\n", body="0\r\n\r\n")`, denied: `^HTTP/1.1 (400|501)`, allow: `G("/public/up", "POST", "Transfer-Encoding: chunked\r\n", body="4\r\nbody\r\n0\r\n\r\n")`, allowed: http2},
		{id: "E56", what: "bare line feeds", deny: `H(b"GET /public/ok HTTP/1.1\nHost: api.example.com\n\n")`, denied: `^(HTTP/1.1 400|timeout|nothing)`},
		{id: "E56", what: "a folded line", deny: `G("/public/ok", more="X-A: b\r\n c\r\n")`, denied: `^HTTP/1.1 400`},
		{id: "E57", what: "a second request for another host", deny: `H(b"GET /public/first HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /public/second HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", all=True)`, denied: `^HTTP/1.1 200 OK; HTTP/1.1 (400|403|421)`, quiet: spoke, never: "second",
			allow: `H(b"GET /public/one HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /public/two HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n", all=True)`, allowed: `^HTTP/1.1 200 OK; HTTP/1.1 200`, arrives: `GET /public/two`},
		{id: "E58", what: "a path that climbs", deny: get("/public/../secret"), denied: `^HTTP/1.1 403`, allow: get("/public/x/../up2"), allowed: http2, arrives: `GET /public/up2 HTTP`},
		{id: "E58", what: "a path that climbs, encoded", deny: get("/public/%2e%2e/secret"), denied: `^HTTP/1.1 (400|403)`},
		{id: "E58", what: "an encoded slash", deny: get("/public/..%2fsecret"), denied: `^HTTP/1.1 (400|403)`},
		{id: "E58", what: "a slash the other way", deny: get(`/public\..\secret`), denied: `^HTTP/1.1 (400|403)`},
		{id: "E58", what: "parameters in segments", deny: get("/public/..;/secret"), denied: `^HTTP/1.1 (400|403)`},
		{id: "E58", what: "a zero byte in a path", deny: get("/public/%00"), denied: `^HTTP/1.1 (400|403)`},
		{id: "E58", what: "an overlong dot", deny: get("/public/%c0%ae%c0%ae/secret"), denied: `^HTTP/1.1 (400|403)`},
		{id: "E58", what: "two slashes before a denied path", deny: get("/public//secret/x"), denied: `^HTTP/1.1 403`},
		{id: "E58", what: "a denied path in other letters", deny: get("/public/SECRET/x"), denied: `^HTTP/1.1 403`},
		{id: "E58", what: "an encoded letter of a denied path", deny: get("/public/%73ecret/x"), denied: `^HTTP/1.1 403`},
		{id: "E59", what: "CONNECT", deny: `H(b"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: evil.example.net:443\r\n\r\n")`, denied: `^HTTP/1.1 (400|403|405)`},
		{id: "E61", what: "an upgrade to h2c", deny: `G("/public/ok", more="Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n")`, denied: `^HTTP/1.1 (400|403|501)`},
		{id: "E61", what: "HTTP/2 without asking", deny: `H(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")`, denied: `^(HTTP/1.1 [45]0\d|ConnectionResetError|nothing)`},
		{id: "E62", what: "an upstream that switches protocols", deny: get("/public/switch"), denied: `^HTTP/1.1 502`, quiet: anything, allow: ok, allowed: http2},
		{id: "E64", what: "a method that is not in the rule", deny: `G("/public/ok", "DELETE")`, denied: `^HTTP/1.1 403`, allow: `G("/public/ok", "GET")`, allowed: http2},
		{id: "E64", what: "a method in small letters", deny: `G("/public/ok", "get")`, denied: `^HTTP/1.1 (400|403|405|501)`},
		{id: "E64", what: "TRACE", deny: `G("/public/ok", "TRACE")`, denied: `^HTTP/1.1 (400|403|405|501)`},
		{id: "E64", what: "a method that overrides: the field does not arrive", deny: `G("/public/over", more="X-HTTP-Method-Override: DELETE\r\n")`, denied: `^HTTP/1.1 200`, quiet: anything, never: "Override"},

		// G: other ways.
		{id: "G80", what: "QUIC", deny: `U(A("api.example.com"), 443)`, denied: lost, allow: `T("api.example.com")`, allowed: hello},
		{id: "G80", what: "what leads to HTTP/3 is taken out of answers", deny: `(lambda s: (s.sendall(b"GET /public/ok HTTP/1.1\r\nHost: api.example.com\r\n\r\n"), "Alt-Svc" in s.recv(4096).decode())[1])(K("api.example.com", 80))`, denied: `^False$`, quiet: anything},
		{id: "G81", what: "ICMP", deny: `(lambda s: (s.settimeout(0.6), s.sendto(b"\x08\0\xf7\xff\0\0\0\0", ("` + goodAddr + `", 0)), s.recv(99)))(socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))`, denied: `^(timeout|PermissionError|OSError)$`},
		{id: "G82", what: "the time", deny: `U("` + goodAddr + `", 123, b"\x1b" + b"\0"*47)`, denied: lost},
		{id: "G83", what: "raw packets", deny: `socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)`, denied: `^(PermissionError|OSError)$`},
		{id: "G83", what: "packet sockets", deny: `socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)`, denied: `^(PermissionError|OSError)$`},
		{id: "G83", what: "SCTP", deny: `socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).connect(("` + goodAddr + `", 80))`, denied: `Error$|^timeout$`},
		{id: "G83", what: "datagrams in fragments", deny: `U("` + goodAddr + `", 5000, b"x" * 65507)`, denied: `^(timeout|OSError)$`},
		{id: "G83", what: "an option of IP", tier: box.TierProcess, deny: `(lambda s: (s.setsockopt(0, 4, b"\x83\x07\x04" + socket.inet_aton("` + goodAddr + `") + b"\0"), s.settimeout(1.5), s.connect((A("api.example.com"), 443)), "connected")[-1])(socket.socket())`, denied: `Error$|^timeout$`},
		{id: "G86", what: "the host's abstract sockets", deny: `socket.socket(socket.AF_UNIX).connect("\0sunaba-test-egress")`, denied: `Error$`},
		{id: "G88", what: "the interface turned off", deny: `__import__("fcntl").ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"eth0", 0))`, denied: `Error$`},

		// H: allowed hosts.
		{id: "H93", what: "writing where reading is allowed", deny: `G("/public/gists", "POST", "Content-Length: 4\r\n", body="data")`, denied: `^HTTP/1.1 403`, never: "gists", allow: `G("/public/gists", "GET")`, allowed: http2},
		{id: "H94", what: "an attacker's own token", needs: "inspection"},
		{id: "H97", what: "a redirector on an allowed host", deny: get("/redirect?to=evil"), denied: `^HTTP/1.1 403`, never: "redirect"},
		{id: "H100", what: "data in a URL beyond its bound", deny: `G("/public/" + "d" * 3000)`, denied: `^HTTP/1.1 414`, never: "ddddd", allow: `G("/public/" + "d" * 300)`, allowed: http2},

		// J: exhaustion.
		{id: "J122", what: "a head of 64 KiB", deny: `G("/public/ok", more="X-A: " + "b" * 65536 + "\r\n")`, denied: `^(HTTP/1.1 431|ConnectionResetError|BrokenPipeError)`, never: "bbbbb"},
		{id: "J122", what: "a thousand fields", deny: `G("/public/ok", more="X-A: b\r\n" * 1000)`, denied: `^(HTTP/1.1 (400|431)|ConnectionResetError)`},
		{id: "J125", what: "a length beyond all bounds", deny: `G("/public/up", "POST", "Content-Length: 99999999999999999999\r\n")`, denied: `^HTTP/1.1 400`},
		{id: "J121", what: "more connections than the policy has", deny: `crowd([64], (80, "open.example.com", 80))`, denied: `^\[64\]$`, quiet: anything, allow: `later(lambda: G("/public/ok"), "HTTP/1.1 200 OK")`, allowed: http2},
	}
	return append(all, namesAndAddresses()...)
}

func TestAttacks(t *testing.T) {
	f := theWorld(t)
	hosts, err := net.Listen("unix", "@sunaba-test-egress") // for G86
	if err != nil {
		t.Fatal(err)
	}
	defer hosts.Close()
	if c, err := net.Dial("unix", "@sunaba-test-egress"); err != nil {
		t.Errorf("the host's own programs: %v", err)
	} else {
		c.Close()
	}
	var tried, controls, waiting int
	for _, a := range attacks() {
		if a.needs != "" {
			waiting++
			t.Logf("not tried, needs %s: %s %s", a.needs, a.id, a.what)
		}
	}
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		s, tier := newSubject(t, u, policyText), box.TierGvisor
		if u.IsTrusting() {
			tier = box.TierProcess
		}
		for _, a := range append(attacks(), siblings(u, tier)...) {
			if a.needs != "" || a.tier != "" && a.tier != tier {
				continue
			}
			t.Run(a.id+" "+a.what, func(t *testing.T) {
				s.t = t
				settle(t, f)
				tried++
				if got := s.try(a.deny); !regexp.MustCompile(a.denied).MatchString(got) {
					t.Errorf("%s says %q, not %s", a.deny, got, a.denied)
				}
				judge(t, a, f.take(t))
				if a.allow == "" {
					return
				}
				controls++
				if got := s.try(a.allow); !regexp.MustCompile(a.allowed).MatchString(got) {
					t.Errorf("the control %s says %q, not %s", a.allow, got, a.allowed)
				}
				if a.arrives != "" {
					arrives(t, f, a.arrives)
				}
			})
		}
		s.t = t
	})
	t.Logf("%d attacks and %d controls from inside boxes; %d wait for what is not built", tried, controls, waiting)
}

// settle waits until nothing comes any more of what was before: until a packet of its
// own, behind all others, has been written down, and then nothing for a while.
func settle(t *testing.T, f *farm) {
	t.Helper()
	rest(t, f, 2)
}

// rest is settle with so many looks in a row, each 10 ms later, that see nothing.
func rest(t *testing.T, f *farm, looks int) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	c, err := net.Dial("udp", net.JoinHostPort(upstream.EvilAddr, "9")) // where nobody listens
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("settled")); err != nil {
		t.Fatal(err)
	}
	var all []seen
	for still, mine := 0, false; still < looks; {
		time.Sleep(10 * time.Millisecond)
		now := f.take(t)
		if mine = mine || slices.ContainsFunc(now, func(s seen) bool { return s.Kind == "packet" && s.At == upstream.EvilAddr }); !mine {
			all = append(all, now...)
			now = append(now, seen{})
		}
		if still++; len(now) > 0 {
			still = 0
		}
		if time.Now().After(deadline) {
			t.Fatalf("the world does not come to rest; its own packet came: %v; others: %v, and now %v", mine, all, now)
		}
	}
}

// judge looks at what a denial brought to the world.
func judge(t *testing.T, a attack, all []seen) {
	t.Helper()
	if a.never != "" {
		for _, s := range all {
			if strings.Contains(s.String(), a.never) || strings.Contains(s.Kind+" "+s.At, a.never) {
				t.Errorf("it came to the world: %v", s)
			}
		}
	}
	for _, s := range all {
		switch {
		case a.quiet == anything:
		case s.Kind == "dns" && a.quiet >= asked, s.Kind == "packet" && s.At == resolverAddr && a.quiet >= asked:
		case a.quiet == spoke && (s.Kind == "conn" || s.Kind == "packet" || s.Kind == "data"):
		default:
			t.Errorf("it caused %v", s)
		}
	}
}

// arrives waits for something in the world.
func arrives(t *testing.T, f *farm, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		for _, s := range f.take(t) {
			if re.MatchString(s.String()) || re.MatchString(s.Kind+" "+s.At) || re.MatchString(s.What) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Errorf("nothing came to the world that is %s", pattern)
			return
		}
	}
}
