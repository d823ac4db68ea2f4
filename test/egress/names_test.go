package egress

import (
	"fmt"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

// list writes strings as arguments in Python.
func list(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%+q", w)
	}
	return strings.Join(quoted, ", ")
}

// namesAndAddresses are siblings of the cases A, B and C, many of a kind in one row.
func namesAndAddresses() []attack {
	const none = `^\[\]$`
	special4 := []string{
		"0.0.0.0", "0.0.0.1", "0.255.255.255", "10.0.0.1", "10.20.30.40", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.254", "127.0.0.1", "127.0.0.53", "127.255.255.254",
		"168.63.129.16", "169.254.0.1", "169.254.169.254", "169.254.169.253", "169.254.170.2", "169.254.42.42", "172.16.0.1", "172.31.255.254", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1",
		"192.168.0.1", "198.18.0.0", "198.18.0.1", "198.18.0.2", "198.18.1.0", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", upstream.Here4, "10.9.0.2",
	}
	special6 := []string{
		"::", "::1", "::2", "::7f00:1", "::a9fe:a9fe", "::ffff:7f00:1", "::ffff:a9fe:a9fe", "::ffff:a14:1e28", "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:fffe::1",
		"100::1", "100:0:0:1::1", "2001::1", "2001:0:a9fe:a9fe::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:a9fe:a9fe::1", "2002:a14:1e28::1", "3fff::1", "3fff:fff:ffff::1", "4000::1",
		"5f00::1", "8000::1", "e000::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fd53:756e:6162:6100::1", "fd53:756e:6162:6100::200", "fe80::1", "fe80::a9fe:a9fe", "febf::1", "fec0::1", "feff::1", "ff02::1", "ff05::1:3", "fd00:9::1", "fd00:9::2",
	}
	named := func(addrs []string) string {
		return "O(*[N(a) for a in (" + list(addrs...) + ")])"
	}
	opens := `O(N("` + upstream.GoodAddr + `"), N("` + upstream.GoodAddr6 + `"))`
	both := `^\['a5db8d70e.to.example.com', 's26062800021f`
	return []attack{
		// A.
		{id: "A1", what: "names that are nearly below a wildcard", deny: "M(" + list("evilwild.example.com", "x.evilwild.example.com", "wild.example.com", "wild.example.com.evil.net", "a.wild.example.com.evil.net", "a.wild.example.comx", "a.wild.examplexcom", "a.wild-example.com", "a.wild", "wild", "com", "example.com",
			"a.example.com", "a.xwild.example.com", "a.wild.example.com.", ".a.wild.example.com", "a..wild.example.com", "..wild.example.com") + ")", denied: none, allow: "M(" + list("x.wild.example.com", "X.Y.Z.WILD.EXAMPLE.COM", "_x._tcp.wild.example.com", strings.Repeat("a.", 60)+"wild.example.com") + ")", allowed: `^\['x.wild.*'X.Y.*'_x.*'a.a.a.`},
		{id: "A7", what: "bytes that no host name has", deny: `M(*["a" + chr(c) + "b.wild.example.com" for c in range(0, 128) if not chr(c).isalnum() and chr(c) not in "-_."])`, denied: none, allow: `M(*["a" + chr(c) + "b.wild.example.com" for c in range(0, 128) if chr(c).isalnum() or chr(c) in "-_."][:62]).__len__()`, allowed: `^62$`},
		{id: "A7", what: "bytes beyond ASCII that are no text", deny: `[c for c in range(128, 256) if "rcode 0, 1" in D("a" + chr(c) + "b.wild.example.com")]`, denied: none},
		{id: "A9", what: "lengths: a label of 64, a name of 254", deny: `M("a." * 117 + "aaa.wild.example.com", "a." * 118 + "aa.wild.example.com", "-a.wild.example.com", "a-.wild.example.com", "-.wild.example.com", "a.-.wild.example.com") + [D("", raw=b"\x12\x34\1\0\0\1\0\0\0\0\0\0\x40" + b"a" * 64 + b"\4wild\7example\3com\0\0\1\0\1")]`, denied: `^\['(rcode 1, 0 answers|timeout)'\]$`, allow: `M("a." * 117 + "aa.wild.example.com", "a" * 63 + ".wild.example.com").__len__()`, allowed: `^2$`},
		{id: "A4", what: "Punycode that is none, or a second spelling", deny: "M(" + list("xn--.wild.example.com", "xn--a.wild.example.com", "xn--abc-.wild.example.com", "xn--0.wild.example.com", "xn--99999999.wild.example.com", "xn--zzzzzzzzzzzz.wild.example.com", "xn--a-.wild.example.com", "xn--wild-.example.com", "xn--api-.example.com",
			"xn--80ak6aa92e-.wild.example.com", "xn---.wild.example.com", "xn--bcher-kv.wild.example.com", "a.xn--a.wild.example.com", "xn--xn--a-.wild.example.com", "xn--ss-6kc\u00fc.wild.example.com") + ")", denied: none, allow: "M(" + list("xn--bcher-kva.wild.example.com", "XN--BCHER-KVA.wild.example.com", "xn--80ak6aa92e.wild.example.com", "xn--fa-hia.wild.example.com", "r3---sn-x.wild.example.com") + ")", allowed: `^\[('[^']*'(, )?){5}\]$`},
		{id: "A4", what: "letters that look alike, and marks that have no shape", deny: "M(" + list("\u0430pi.example.com", "ap\u0456.example.com", "api.ex\u0430mple.com", "api.example.c\u043em", "a\u0307pi.example.com", "api\u0307.example.com", "\u202eapi.example.com", "a\u05d0.wild.example.com", "\u05d0a.wild.example.com", "1\u05d0.wild.example.com",
			"a\u200db.wild.example.com", "a\u200cb.wild.example.com", "\u0301a.wild.example.com", "a\u2024wild.example.com", "a\u2488wild.example.com", "\u2100.wild.example.com", "a\uff0fb.wild.example.com", "a\uff1a443.wild.example.com", "a\uff20b.wild.example.com", "\ufeffa\uff0e\uff0ewild.example.com", "\ud7b0\u0378.wild.example.com", "a\ufffd.wild.example.com") + ")",
			denied: none, allow: "M(" + list("\uff41pi.example.com", "\u24d0pi.example.com", "API.EXAMPLE.\u24b8\u24c4\u24c2", "api\u3002example\uff0ecom", "a\u00adpi.example.com", "b\u00fccher.wild.example.com", "fa\u00df.wild.example.com", "\u03b2\u03bf\u03c2.wild.example.com", "\u05d0\u05d1.wild.example.com") + ")", allowed: `^\[('[^']*'(, )?){9}\]$`},
		{id: "A10", what: "addresses written as names", deny: "M(" + list("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0X7F.0.0.1", "017700000001", "0177.1", "0", "0x", "00", "1", "1.2.3", "1.2.3.4.5", "256.256.256.256", "4294967296", "99999999999999999999", "a.1", "a.b.0x1F", "a.0XfF", "wild.example.com.0", "0.0.0.0", "169.254.169.254",
			"\u2460\u2461\u2466.0.0.1", "\uff11\uff12\uff17.1", "127\u30020\u30020\u30021", "127\uff0e0\uff0e0\uff0e\u2460", "0\uff587f.1", "169.254.169.25\u2463", "\U0001d7cf\U0001d7d0\U0001d7d5.0.0.\U0001d7cf", "\u06f1.\u06f2.\u06f3.\u06f4") + ")", denied: none, allow: "M(" + list("127.0.0.1.wild.example.com", "0x7f.wild.example.com", "1.wild.example.com") + ")", allowed: `^\['127.*'0x7f.*'1.wild`},
		{id: "A13", what: "names of machines' own surroundings", deny: "M(socket.gethostname(), " + list("localhost", "foo.localhost", "localhost.localdomain", "localhost.wild", "a.local", "router.lan", "printer.home.arpa", "metadata", "metadata.google.internal", "x.metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal", "metadata.azure.internal", "host.docker.internal", "gateway.docker.internal",
			"host.containers.internal", "host.lima.internal", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "1.0.0.127.in-addr.arpa", "1.0.ip6.arpa", "ipv4only.arpa", "x.onion", "wpad", "isatap", "_gateway", "_outbound", "_localdnsstub", "use-application-dns.net", "resolver.arpa", "_dns.resolver.arpa") + ")", denied: none},
		{id: "A11", what: "every other port that somebody may listen at", deny: `[p for p in (1, 7, 21, 22, 23, 25, 81, 110, 111, 123, 143, 444, 445, 465, 587, 853, 993, 1080, 2375, 3128, 3306, 5353, 5432, 6379, 8000, 8081, 8443, 9200, 11211, 27017, 32768, 65535) if O(A("api.example.com"), port=p, wait=1)]`, denied: none, allow: `[p for p in (80, 443, 8080) if O(A("api.example.com"), port=p)]`, allowed: `^\[80, 443, 8080\]$`},

		// B.
		{id: "B19", what: "names with every special address of version 4", deny: named(special4), denied: none, quiet: asked, allow: opens, allowed: both, arrives: `conn \[2606:2800:21f::14\]:443`},
		{id: "B17", what: "names with every special address of version 6", deny: named(special6), denied: none, quiet: asked, allow: opens, allowed: both, arrives: `conn 93.184.215.14:443`},
		{id: "B22", what: "every special address itself", deny: "O(" + list(append(special4[12:], upstream.GoodAddr, upstream.EvilAddr, "8.8.8.8", "1.1.1.1")...) + ", wait=1)", denied: none, allow: ok80, allowed: http2},
		{id: "B22", what: "every special address of version 6 itself", deny: "O(" + list(append(special6[3:], upstream.GoodAddr6, "fe80::1%eth0", "2001:4860:4860::8888")...) + ", wait=1)", denied: none},
		{id: "B20", what: "synthetic addresses that were never told, and those beside one that was", deny: `(lambda b: O(*[socket.inet_ntoa(struct.pack(">I", b + d)) for d in (-256, -2, -1, 1, 2, 256)], "198.18.0.3", "198.18.0.255", "198.18.1.0", "198.18.1.1", "198.19.255.254", "198.17.255.255", "198.20.0.0", wait=1))(struct.unpack(">I", socket.inet_aton(A("api.example.com")))[0])`, denied: none, allow: `O("api.example.com")`, allowed: `api`},
		{id: "B20", what: "a synthetic address in another form", deny: `(lambda b: O(*["fd53:756e:6162:6100:%s:%x:%x" % (m, b[1] - 18, b[2] << 8 | b[3]) for m in ("1:0", "0:1", "ffff:0")], *["%s::%x:%x" % (p, b[1] - 18, b[2] << 8 | b[3]) for p in ("fd53:756e:6162:6101", "fd53:756e:6162:61ff", "64:ff9b", "::ffff:0")], "64:ff9b::" + A("api.example.com"), "::" + A("api.example.com")))(socket.inet_aton(A("api.example.com")))`, denied: none, allow: `O("::ffff:" + A("api.example.com"))`, allowed: `ffff`},
		{id: "B31", what: "answers of good and bad addresses: only the good one is ever reached", deny: `O("aa9fea9fe-a5db8d70e-a0a141e28-a7f000001.to.example.com", "s00000000000000000000ffff7f000001-a5db8d70e.to.example.com")`, denied: `^\['aa9.*'s0`, quiet: anything, never: "conn " + upstream.MetadataAddr},

		// C.
		{id: "C34", what: "resolvers that fail, lie, or are spoken for", deny: "O(" + list("refused-a5db8d70e.to.example.com", "notimp-a5db8d70e.to.example.com", "nx-a5db8d70e.to.example.com", "id-a5db8d70e.to.example.com", "other-a5db8d70e.to.example.com", "question-a5db8d70e.to.example.com", "cut-a5db8d70e.to.example.com", "loop.to.example.com", "stranger.to.example.com", "alias-a7f000001.to.example.com", "alias-aa9fea9fe-s00000000000000000000ffff7f000001.to.example.com", "empty.to.example.com") + ", wait=11)", denied: none, quiet: asked, allow: `O("alias-a5db8d70e.to.example.com", "stranger-a5db8d70e.to.example.com")`, allowed: `^\['alias.*'stranger`},
		{id: "C33", what: "headers that no question has", deny: "[f for f in (b'\\x80\\0', b'\\x08\\0', b'\\x10\\0', b'\\x20\\0', b'\\x28\\0', b'\\x78\\0', b'\\xff\\xff') if 'rcode 0' in D('', raw=QN('api.example.com', flags=f), wait=0.3)]", denied: none, allow: "[f for f in (b'\\0\\0', b'\\1\\0', b'\\1\\x20', b'\\1\\x10', b'\\1\\x0f', b'\\3\\0', b'\\5\\x80') if 'rcode 0, 1' in D('', raw=QN('api.example.com', flags=f))].__len__()", allowed: `^7$`},
		{id: "C33", what: "counts that lie", deny: `[c for c in (b"\0\0\0\0\0\0\0\0", b"\0\2\0\0\0\0\0\0", b"\xff\xff\0\0\0\0\0\0", b"\0\1\0\1\0\0\0\0", b"\0\1\0\0\0\1\0\0", b"\0\1\0\0\0\0\0\1", b"\0\1\0\0\0\0\0\2", b"\0\1\0\0\0\0\xff\xff") if "rcode 0" in D("", raw=QN("api.example.com", counts=c), wait=0.3)]`, denied: none},
		{id: "C33", what: "names that are compressed, cut, or have other kinds of labels", deny: `[n for n in (b"\xc0\x0c", b"\3api\xc0\x0c", b"\xc0\xff", b"\xff\xff", b"\3api\7example\3com\xc0\x00", b"\x40api", b"\x80api\0", b"\x41\x08\xff\0", b"\3api\7example\3com", b"\3ap", b"\x3f", b"\0", b"\3a\0i\7example\3com\0", b"\x0fapi.example.com\0", b"\x0bapi.example\3com\0", b"\3api\x0bexample.com\0\0") if "rcode 0" in D("", raw=b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + n + b"\0\1\0\1", wait=0.3)]`, denied: none, allow: `D("", raw=b"\x12\x34\1\0\0\1\0\0\0\0\0\0\3api\7example\3com\0\0\1\0\1")`, allowed: `rcode 0, 1`},
		{id: "C33", what: "options that are cut, and records that are none", deny: `[m for m in (b"\0\0\x29", b"\0\0\x29\4\0\0\0\0\0\0\4\0\x0a\0", b"\0\0\x29\4\0\0\0\0\0\0\6\0\x0a\0\x09ab", b"\3api\0\0\x29\4\0\0\0\0\0\0\0", b"\0\0\1\0\1\0\0\0\0\0\4abcd", b"\0\0\xfa\0\xff\0\0\0\0\0\0", b"\0\0\x29\4\0\0\0\0\0\xff\xff") if "rcode 0" in D("", raw=QN("api.example.com", counts=b"\0\1\0\0\0\0\0\1", more=m), wait=0.3)]`, denied: none, allow: `[m for m in (b"\0\0\x29\4\0\0\0\0\0\0\0", b"\0\0\x29\x10\0\0\0\x80\0\0\x0c\0\x0a\0\x08abcdefgh", b"\0\0\x29\4\0\0\0\0\0\0\x0b\0\x08\0\7\0\1\x18\0\x0a\0\1", b"\0\0\x29\xff\xff\0\0\0\0\1\4\0\x0c\1\0" + b"\0" * 256) if "rcode 0, 1" in D("", raw=QN("api.example.com", counts=b"\0\1\0\0\0\0\0\1", more=m))].__len__()`, allowed: `^4$`},
		{id: "C33", what: "classes that are not the Internet's", deny: `[c for c in (0, 2, 3, 4, 254, 255, 0x8001, 65535) if "rcode 0" in D("", raw=QN("api.example.com", cls=c), wait=0.3)]`, denied: none},
		{id: "C26", what: "every other type of record of an allowed name", deny: `[k for k in list(range(2, 28)) + list(range(29, 70)) + [99, 249, 250, 251, 252, 253, 254, 255, 256, 257, 258, 32768, 65535, 0] if k != 1 and D("api.example.com", k) != "rcode 0, 0 answers"]`, denied: none, allow: `D("api.example.com", 1) + D("api.example.com", 28)`, allowed: `^rcode 0, 1 answersrcode 0, 1 answers$`},
		{id: "C26", what: "a transfer of the zone, over TCP", deny: `W([L2(QN("api.example.com", 252)), L2(QN("example.com", 252)), L2(QN("api.example.com", 251))], 3)`, denied: `^0:0 3:0 0:0$`},
		{id: "C24", what: "data in denied names of all types, over both transports", deny: `[D("secret-data-%d.evil.example.net" % k, k, tcp=t, server=v) for k in (1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 43, 48, 64, 65, 255) for t in (False, True) for v in (GW, "9.9.9.9")].count("rcode 3, 0 answers")`, denied: `^60$`, never: "secret-data"},
		{id: "C28", what: "questions to addresses that nobody has", deny: `[v for v in ("0.0.0.1", "10.0.0.1", "169.254.169.253", "198.19.255.255", "240.0.0.1", "192.0.2.1", "fd00::1", "2001:db8::1", "fd53:756e:6162:6100::1", "64:ff9b::909:90a") if D("evil.example.net", server=v) != "rcode 3, 0 answers"]`, denied: none},
		{id: "C33", what: "many questions, and parts of some, over one connection", deny: `W([L2(QN("evil.example.net")) * 200], 128)`, denied: `^(3:0 ?){128}$`, allow: `W([bytes([b]) for b in L2(QN("api.example.com"))] + [L2(QN("evil.example.net")), L2(QN("api.example.com", 28))], 3)`, allowed: `^0:1 3:0 0:1$`},
		{id: "C33", what: "lengths over TCP that lie", deny: `[W([m], wait=0.3) for m in (b"\0\0", b"\0\1x", b"\xff\xff" + b"\0" * 1000, b"\4\1" + b"\0" * 1025, b"\0\x0b" + b"\0" * 11)]`, denied: `^\[('', ){4}''\]$`, allow: `W([L2(QN("api.example.com"))])`, allowed: `^0:1$`},
		{id: "C33", what: "questions that are longer than any", deny: `[n for n in (1025, 1472, 4096, 9000, 60000) if "rcode 0" in tries(lambda: D("", raw=QN("api.example.com", counts=b"\0\1\0\0\0\0\0\1", more=b"\0\0\x29\4\0\0\0\0\0" + struct.pack(">HHH", n - 44, 12, n - 48) + b"\0" * (n - 48)), wait=0.3))]`, denied: none, allow: `D("", raw=QN("api.example.com", counts=b"\0\1\0\0\0\0\0\1", more=b"\0\0\x29\4\0\0\0\0\0" + struct.pack(">HHH", 904, 12, 900) + b"\0" * 900))`, allowed: `rcode 0, 1`},
		{id: "C28", what: "UDP to every port but DNS's", deny: `[p for p in (1, 52, 54, 67, 123, 137, 161, 443, 500, 853, 1900, 3478, 4500, 5353, 5355, 51820, 65535) if U(A("api.example.com"), p, wait=0.05) != "timeout"]`, denied: none, allow: `D("api.example.com")`, allowed: `rcode 0, 1`},

		// What a box might do to its own end of the wire.
		{id: "B", what: "an address of another box as the source", deny: `[tries(lambda: (lambda s: (s.setsockopt(0, o, 1), s.bind((a, 0)), s.settimeout(1), s.connect((A("api.example.com"), 443)), a)[-1])(socket.socket())) for o in (15, 19) for a in ("198.18.0.5", "198.18.0.1", "10.9.0.1", "8.8.8.8")]`, denied: `^\[('(PermissionError|OSError|timeout|TimeoutError)'(, )?){8}\]$`, allow: `(lambda s: (s.bind(("198.18.0.2", 0)), s.connect((A("api.example.com"), 443)), "own")[-1])(socket.socket())`, allowed: `own`},
		{id: "B", what: "the interface's address, its size, its routes and its name", deny: `[tries(lambda: __import__("fcntl").ioctl(socket.socket(), r, struct.pack("16sH2s4s8x", b"eth0", 2, b"", socket.inet_aton("198.18.0.9")))) for r in (0x8916, 0x891c, 0x891a, 0x8922, 0x8924, 0x890b, 0x8923, 0x8914, 0x89a0, 0x8930)]`, denied: `^\[('(PermissionError|OSError)'(, )?){10}\]$`},
		{id: "B", what: "the interface by netlink", deny: `[(lambda s: (s.bind((0, 0)), s.settimeout(1), s.send(struct.pack("=LHHLL", 16 + len(b), k, 0x405, 1, 0) + b), struct.unpack("=i", s.recv(999)[16:20])[0] < 0)[-1])(socket.socket(16, 3, 0)) for k, b in ((20, struct.pack("=BBBBLHH4sHH4s", 2, 15, 0, 0, 2, 8, 2, bytes([198, 18, 0, 9]), 8, 1, bytes([198, 18, 0, 9]))), (21, struct.pack("=BBBBLHH4s", 2, 15, 0, 0, 2, 8, 2, bytes([198, 18, 0, 2]))), (24, struct.pack("=BBBBBBBBLHHL", 2, 0, 0, 0, 254, 4, 0, 1, 0, 8, 4, 2)), (17, struct.pack("=BBHiLL", 0, 0, 0, 2, 0, 0)), (16, struct.pack("=BBHiLLHH4s", 0, 0, 0, 2, 0, 1, 8, 4, struct.pack("=L", 9000))))]`, denied: `^(\[(True(, )?){5}\]|PermissionError|OSError)$`},
		{id: "G83", what: "sockets of other kinds", deny: `[(f, k, p) for f, k, p in ((2, 3, 1), (2, 3, 6), (2, 3, 17), (2, 3, 255), (10, 3, 58), (2, 2, 136), (2, 6, 33), (2, 5, 132), (2, 1, 262), (17, 3, 0), (17, 2, 0), (40, 1, 0), (38, 5, 0), (44, 3, 0), (15, 3, 2), (30, 1, 0), (29, 3, 1), (31, 3, 0), (16, 3, 12)) if not tries(lambda: socket.socket(f, k, p)).endswith("Error")]`, denied: none},
		{id: "G83", what: "options of packets", tier: box.TierProcess, deny: `[tries(lambda: (lambda s: (s.setsockopt(l, o, v), s.settimeout(0.7), s.connect((h, 443)), "connected")[-1])(socket.socket(f))) for f, h, l, o, v in ((2, A("api.example.com"), 0, 4, b"\x07\x07\4\0\0\0\0\0"), (2, A("api.example.com"), 0, 4, b"\x94\4\0\0"), (10, A("six.example.com", 10), 41, 59, b"\0\0\1\4\0\0\0\0"), (10, A("six.example.com", 10), 41, 54, b"\0\0\1\4\0\0\0\0"), (10, A("six.example.com", 10), 41, 57, b"\0\2\0\1\0\0\0\0" + socket.inet_pton(10, "` + upstream.GoodAddr6 + `")))]`, denied: `^\[('(PermissionError|OSError|timeout|TimeoutError)'(, )?){5}\]$`},
	}
}

// ok80 is a request that is allowed.
const ok80 = `G("/public/ok")`
