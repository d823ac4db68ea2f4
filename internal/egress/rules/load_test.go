package rules_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/egress/special"
	"github.com/sunaba-dev/sunaba/internal/hostname"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

func policy(t *testing.T, text string) *rules.Policy {
	t.Helper()
	p, err := rules.Load("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const long = `version: 1
default: deny
limits: { conns: 64, names: 100, tx_bytes: 50MiB, rx_bytes: 1g, url_bytes: 4KiB, header_bytes: 16KiB, rate: 50/s, idle: 30m }
dns: { resolvers: [192.0.2.53, "[2001:db8::53]:5353"], answer: synthetic }
hosts:
  - { name: api, host: api.example.com, tls: splice, tx_bytes: 1MiB }
  - { host: updates.example.org, tls: splice, rules: [ { tx_bytes: 1MiB, rate: 60/m } ] }
  - name: plain
    host: plain.example.com
    port: 80
    rules:
      - { name: read, methods: [GET, HEAD], paths: ["/repos/acme/**", "/status"], rate: 60/m }
      - { name: comment, methods: [POST], paths: ["/repos/acme/*/issues/*/comments"] }
      - { name: no-gists, methods: ["*"], paths: ["/gists/**", "/repos/acme/private/**"], decide: deny }
  - { host: "*.pages.example.com", ports: [8080, 80], protocol: http }
  - { host: bad.pages.example.com, decide: deny }
  - { host: db.internal.example.com, port: 5432, protocol: tcp, cidr: 10.2.0.0/24, sink: internal }
  - { cidr: 10.3.0.0/16, ports: [6379], protocol: tcp, sink: internal }
  - { cidr: 10.3.9.0/24, decide: deny }
  - { host: db.corp.internal, port: 443, tls: splice, sni: optional, cidr: "fd12::/64", sink: internal }
`

func TestTheLongFormIsReadAsItIsWritten(t *testing.T) {
	p := policy(t, long)
	if p.Limits.Conns != 64 || p.Limits.Names != 100 || p.Limits.TxBytes != 50<<20 || p.Limits.RxBytes != 1<<30 || p.Limits.URLBytes != 4096 || p.Limits.HeaderBytes != 16384 || p.Limits.Rate.String() != "50/s" || p.Limits.Idle != 30*time.Minute {
		t.Errorf("limits %+v", p.Limits)
	}
	if strings.Join(p.DNS.Resolvers, " ") != "192.0.2.53 [2001:db8::53]:5353" {
		t.Errorf("dns %+v", p.DNS)
	}
	q, err := rules.Parse(p.JSON())
	if err != nil || q.Digest() != p.Digest() {
		t.Fatalf("it does not travel: %v", err)
	}
	for _, p := range []*rules.Policy{p, q} {
		for _, c := range []struct {
			name hostname.Name
			port uint16
			rule string
			code rules.Code
		}{
			{"api.example.com", 443, "api", rules.Allowed},
			{"api.example.com", 80, "api", rules.PortClosed},
			{"updates.example.org", 443, "hosts[1]", rules.Allowed},
			{"plain.example.com", 80, "plain", rules.Allowed},
			{"plain.example.com", 443, "plain", rules.PortClosed},
			{"a.pages.example.com", 80, "hosts[3]", rules.Allowed},
			{"a.pages.example.com", 8080, "hosts[3]", rules.Allowed},
			{"bad.pages.example.com", 80, "hosts[4]", rules.DeniedByRule},
			{"bad.pages.example.com", 8080, "hosts[4]", rules.DeniedByRule},
			{"db.internal.example.com", 5432, "hosts[5]", rules.Allowed},
			{"db.corp.internal", 443, "hosts[8]", rules.Allowed},
			{"other.test", 443, "", rules.NotListed},
		} {
			h, v := p.Host(c.name, c.port)
			if v.Rule != c.rule || v.Code != c.code || v.Allow != (v.Code == rules.Allowed) || (h != nil) != v.Allow {
				t.Errorf("%s:%d: %+v", c.name, c.port, v)
			}
		}
		for n, want := range map[hostname.Name]bool{"api.example.com": true, "bad.pages.example.com": false, "x.bad.pages.example.com": true, "pages.example.com": false, "a.pages.example.com": true, "example.com": false} {
			if p.Name(n) != want {
				t.Errorf("%s is answered: %v", n, !want)
			}
		}
		for a, want := range map[string]rules.Code{
			"10.3.1.1:6379": rules.Allowed, "[::ffff:10.3.1.1]:6379": rules.Allowed, "10.3.9.1:6379": rules.DeniedByRule, "10.3.1.1:22": rules.PortClosed, "10.2.0.1:5432": rules.NotListed, "8.8.8.8:443": rules.NotListed,
			"127.0.0.1:6379": rules.NotListed, "169.254.169.254:80": rules.NotListed,
		} {
			if h, v := p.CIDR(netip.MustParseAddrPort(a)); v.Code != want || (h != nil) != v.Allow || v.Allow != (want == rules.Allowed) {
				t.Errorf("%s: %+v", a, v)
			}
		}
		h, _ := p.Host("db.internal.example.com", 5432)
		for a, want := range map[string]rules.Code{"10.2.0.9": rules.Allowed, "::ffff:10.2.0.9": rules.Allowed, "10.2.1.9": rules.OutsideCIDR, "93.184.216.34": rules.BadAddress, "127.0.0.1": rules.BadAddress, "169.254.169.254": rules.BadAddress} {
			if v := h.Address(special.Table{}, netip.AddrPortFrom(netip.MustParseAddr(a), 5432)); v.Code != want || v.Allow != (want == rules.Allowed) {
				t.Errorf("%s of the database: %+v", a, v)
			}
		}
	}
	if h, v := p.Host("updates.example.org", 443); h == nil || v.Budget.TxBytes != 1<<20 || v.Budget.Rate.String() != "60/m" || h.Mode != rules.Splice {
		t.Errorf("a budget in the one rule of an unread host: %+v", v)
	}
}

// TestRequestsAreJudgedByMethodAndPath has case H 93 and E 64 of the attack
// list, with the paths of E 58 in their canonical form.
func TestRequestsAreJudgedByMethodAndPath(t *testing.T) {
	h, _ := policy(t, long).Host("plain.example.com", 80)
	if h == nil {
		t.Fatal("the host is denied")
	}
	for _, c := range []struct {
		method, path, rule string
		code               rules.Code
	}{
		{"GET", "/repos/acme/a", "plain/read", rules.Allowed},
		{"GET", "/repos/acme", "plain/read", rules.Allowed},
		{"GET", "/repos/acme/", "plain/read", rules.Allowed},
		{"HEAD", "/status", "plain/read", rules.Allowed},
		{"GET", "/status/", "plain", rules.PathClosed},
		{"GET", "/Status", "plain", rules.PathClosed},
		{"GET", "/repos/acmex/a", "plain", rules.PathClosed},
		{"GET", "/repos", "plain", rules.PathClosed},
		{"GET", "/", "plain", rules.PathClosed},
		{"POST", "/repos/acme/a/issues/1/comments", "plain/comment", rules.Allowed},
		{"POST", "/repos/acme/a/issues/1/2/comments", "plain", rules.MethodClosed},
		{"POST", "/repos/acme/a/issues//comments", "plain", rules.BadPath},
		{"POST", "/repos/acme/a", "plain", rules.MethodClosed},
		{"POST", "/other", "plain", rules.PathClosed},
		{"GET", "/repos/acme/private/x", "plain/no-gists", rules.DeniedByRule},
		{"GET", "/repos/acme/PRIVATE/x", "plain/no-gists", rules.DeniedByRule},
		{"GET", "/repos/acme/private;v=1/x", "plain/no-gists", rules.DeniedByRule},
		{"GET", "/repos/acme/private./x", "plain/no-gists", rules.DeniedByRule},
		{"GET", "/repos/acme/private%20/x", "plain/no-gists", rules.DeniedByRule},
		{"GET", "/repos/acme/private/", "plain/no-gists", rules.DeniedByRule},
		{"GET", "/repos/acme/private", "plain/no-gists", rules.DeniedByRule},
		{"POST", "/gists", "plain/no-gists", rules.DeniedByRule},
		{"GET", "/repos/acme/privately", "plain/read", rules.Allowed},
		{"get", "/status", "plain", rules.BadMethod},
		{"FOO", "/status", "plain", rules.BadMethod},
		{"TRACE", "/status", "plain", rules.BadMethod},
		{"CONNECT", "/status", "plain", rules.BadMethod},
		{"", "/status", "plain", rules.BadMethod},
		{"GET ", "/status", "plain", rules.BadMethod},
		{"GET", "", "plain", rules.BadPath},
		{"GET", "status", "plain", rules.BadPath},
		{"GET", "/repos/acme/../../status", "plain", rules.BadPath},
		{"GET", "/repos//acme/a", "plain", rules.BadPath},
	} {
		v := h.Request(rules.Request{Method: c.method, Path: c.path})
		if v.Code != c.code || v.Rule != c.rule || v.Allow != (c.code == rules.Allowed) || v.Reason == "" {
			t.Errorf("%q %q: %+v", c.method, c.path, v)
		}
	}
	api, _ := policy(t, long).Host("api.example.com", 443)
	if v := api.Request(rules.Request{Method: "GET", Path: "/"}); v.Allow || v.Code != rules.NotHTTP {
		t.Errorf("a request to a host that passes unread: %+v", v)
	}
}

// TestAFixAllowsWhatItIsFor takes each fix by its word.
func TestAFixAllowsWhatItIsFor(t *testing.T) {
	p := policy(t, "version: 1\nhosts:\n  - { name: w, host: plain.example.com, port: 80, rules: [ { methods: [GET], paths: [/a] } ] }\n")
	for _, c := range []struct {
		name hostname.Name
		port uint16
	}{{"a.example.com", 443}, {"a.example.com", 80}, {"a.example.com", 8443}, {"plain.example.com", 443}} {
		_, v := p.Host(c.name, c.port)
		if _, again := policy(t, "version: 1\nhosts:\n  "+v.Fix+"\n").Host(c.name, c.port); !again.Allow {
			t.Errorf("%s:%d: %q gives %+v", c.name, c.port, v.Fix, again)
		}
	}
	_, v := p.CIDR(netip.MustParseAddrPort("10.0.0.1:6379"))
	if _, again := policy(t, "version: 1\nhosts:\n  "+v.Fix+"\n").CIDR(netip.MustParseAddrPort("10.0.0.1:6379")); !again.Allow {
		t.Errorf("%q gives %+v", v.Fix, again)
	}
	h, _ := p.Host("plain.example.com", 80)
	v = h.Request(rules.Request{Method: "POST", Path: "/b'c"})
	rule, _, _ := strings.Cut(v.Fix, " in the rules of ")
	h, _ = policy(t, "version: 1\nhosts:\n  - host: plain.example.com\n    port: 80\n    rules:\n      "+rule+"\n").Host("plain.example.com", 80)
	if h == nil {
		t.Fatal("the host is denied")
	}
	if again := h.Request(rules.Request{Method: "POST", Path: "/b'c"}); !again.Allow {
		t.Errorf("%q gives %+v", v.Fix, again)
	}
	for _, n := range []hostname.Name{"metadata.google.internal", "localhost", "x.localhost"} {
		if _, v := p.Host(n, 80); v.Fix != "" {
			t.Errorf("there is a fix for %s: %s", n, v.Fix)
		}
	}
	if _, v := p.CIDR(netip.MustParseAddrPort("169.254.169.254:80")); v.Fix != "" {
		t.Errorf("there is a fix for metadata: %s", v.Fix)
	}
}

func TestWhatIsWrongIsToldWithPlaceAndFix(t *testing.T) {
	host := func(s string) string { return "version: 1\nhosts:\n  - { " + s + " }\n" }
	web := func(s string) string { return host("host: a.test, port: 80, rules: [ { " + s + " } ]") }
	two := func(a, b string) string { return "version: 1\nhosts:\n  - { " + a + " }\n  - { " + b + " }\n" }
	for _, c := range []struct{ text, place, want string }{
		{"", "1:1", "`version: 1`"}, {"# nothing\n", "1:1", "`version: 1`"}, {"hosts: []\n", "1:1", "write `version: 1`"}, {"version: 2\n", "1:10", "allowed: 1"}, {"[]\n", "1:1", "keys with values"},
		{"version: 1\ndefault: allow\n", "2:10", "allowed: deny"}, {"version: 1\nhost: []\n", "2:1", "did you mean hosts?"}, {"version: 1\nhosts: {}\n", "2:8", "allowed: a list"}, {"version: 1\nhosts:\n", "2:", "nothing"},
		{"version: 1\nversion: 1\n", "2:1", "twice"}, {"version: 1\nhosts: &a []\n", "2:8", "anchor"}, {"version: 1\nhosts: [*a]\n", "2:", "alias"}, {"version: 1\n---\nversion: 1\n", "2:", "second document"}, {"version: !!int 1\n", "1:10", "tag"},
		{"version: 1\nhosts:\n\t- {}\n", "3:1", "tab"}, {"version: 1\n# \u202e\n", "2:3", "invisible"}, {"version: 1\nhosts: [ { host: a.test, port: 80, rules: [] } ]\n", "2:43", "leave it out to allow all"},
		{"version: 1\nhosts: [ { host: a.test, tls: splice, ports: [] } ]\n", "2:46", "leave it out for port 443"}, {"version: 1\nhosts: [ { host: a.test, decide: deny, ports: [] } ]\n", "2:47", "every port"},
		{"version: 1\nhosts: [ {} ]\n", "2:10", "neither host nor cidr"}, {"version: 1\nhosts: [ { tls: splice } ]\n", "2:10", "neither host nor cidr"},
		{"version: 1\nhosts: [ { cidr: \"fd53:756e:6162:6100::/80\", port: 80, protocol: tcp, sink: internal } ]\n", "2:18", "the gateway's own addresses"}, {"version: 1\nzzz: 1\n", "2:1", "allowed: default, dns, hosts, limits, version"},
		{"version: 1\nlimits: { conns: 0 }\n", "2:18", "allowed: 1 to 4096"}, {"version: 1\nlimits: { conns: 5000 }\n", "2:18", "allowed: 1 to 4096"}, {"version: 1\nlimits: { tx_bytes: 0 }\n", "2:21", "leave it out"}, {"version: 1\nlimits: { rate: 5/d }\n", "2:17", "60/m"},
		{"version: 1\nlimits: { idle: 0.5 }\n", "2:17", "1s to 24h"}, {"version: 1\nlimits: { idle: 25h }\n", "2:17", "1s to 24h"}, {"version: 1\nlimits: { idle: never }\n", "2:17", "not a duration"},
		{"version: 1\nlimits: { cons: 5 }\n", "2:11", "did you mean conns?"}, {"version: 1\nlimits: { tx_bytes: 1.5g }\n", "2:21", "not a whole number"}, {"version: 1\nlimits: { header_bytes: 1t }\n", "2:25", "allowed: 256 to"}, {"version: 1\nlimits: { names: 010 }\n", "2:18", "leading zero"},
		{"version: 1\ndns: { answer: real }\n", "2:16", "not in this build"}, {"version: 1\ndns: { resolvers: [] }\n", "2:19", "1 to 8"}, {"version: 1\ndns: { resolvers: [dns.test] }\n", "2:20", "IP address"}, {"version: 1\ndns: { resolvers: [system, 192.0.2.1] }\n", "2:19", "stands alone"}, {"version: 1\ndns: { resolvers: [0.0.0.0] }\n", "2:20", "IP address"},

		{host("host: api.test"), "3:5", "write `tls: splice`"}, {host("host: api.test, port: 443"), "3:5", "write `tls: splice`"}, {host("host: api.test, tls: inspect"), "3:28", "not in this build; write `tls: splice`"},
		{host("host: api.test, port: 8443"), "3:", "`tls: splice`, `protocol: http` or `protocol: tcp`"}, {host("host: api.test, ports: [80, 443]"), "3:", "cannot tell what"}, {host("host: api.test, tls: splice, protocol: tcp"), "3:", "TLS is the protocol"},
		{host("tls: splice"), "3:5", "neither host nor cidr"}, {host("host: API.test, tls: splice"), "3:13", "write api.test"}, {host(`host: "*", tls: splice`), "3:13", "would be everything"}, {host(`host: "*.com", tls: splice`), "3:13", "top-level"},
		{host(`host: "*.co.uk", tls: splice`), "3:13", "name each domain"}, {host("host: 10.0.0.1, tls: splice"), "3:13", "IP address"}, {host(`host: "a.test\n*.evil.test", tls: splice`), "3:13", "star"}, {host(`host: "a.test #x", tls: splice`), "3:13", "character"},
		{host("host: localhost, port: 80"), "3:13", "asking machine"}, {host("host: metadata.google.internal, port: 80, cidr: 10.0.0.0/8, sink: internal"), "3:13", "metadata"}, {host("host: a.corp.internal, tls: splice"), "3:13", "sink: internal"}, {host(`host: "*.corp.internal", tls: splice, cidr: 10.0.0.0/8, sink: internal`), "3:13", "name each host"},
		{host("host: a.test, port: 0, tls: splice"), "3:27", "1 to 65535"}, {host("host: a.test, port: 0x1bb, tls: splice"), "3:27", "1 to 65535"}, {host("host: a.test, ports: [443, 443], tls: splice"), "3:34", "twice"}, {host("host: a.test, ports: [], tls: splice, port: [1]"), "3:", "single value"}, {host("host: a.test, port: 53, protocol: tcp"), "3:", "port 53"},
		{host("host: a.test, tls: none"), "3:26", "allowed: splice"}, {host("host: a.test, tls: splice, decide: ask"), "3:", "decide: ask: it is not in this build"}, {host("host: a.test, tls: splice, decide: maybe"), "3:", "allowed: allow, deny"}, {host("host: a.test, tls: splice, sink: external"), "3:", "not in this build"},
		{host("host: a.test, decide: deny, tls: splice"), "3:", "in an entry that denies"}, {host("host: a.test, decide: deny, tx_bytes: 1k"), "3:", "an entry that denies"}, {host("host: a.test, sni: optional, port: 80"), "3:", "tls: splice only"}, {host(`host: "*.a.test", port: 25, protocol: tcp`), "3:13", "name the one host"},
		{host("host: a.test, tls: splice, cidr: 10.0.0.0/8"), "3:40", "write `sink: internal`"}, {host("host: a.test, tls: splice, sink: internal"), "3:40", "without a network"},
		{host("cidr: 0.0.0.0/0, port: 22, protocol: tcp, sink: internal"), "3:13", "wider than a private range"}, {host(`cidr: "::ffff:168.0.0.0/103", port: 22, protocol: tcp, sink: internal`), "3:13", "IPv4 in IPv6"}, {host("cidr: 169.254.169.254/32, port: 80, protocol: tcp, sink: internal"), "3:13", "metadata"},
		{host("cidr: 127.0.0.1/32, port: 22, protocol: tcp, sink: internal"), "3:13", "loopback"}, {host("cidr: 8.8.8.8/32, port: 22, protocol: tcp, sink: internal"), "3:13", "public"}, {host("cidr: 10.0.0.1/8, port: 22, protocol: tcp, sink: internal"), "3:13", "write 10.0.0.0/8"}, {host("cidr: 10.0.0.0, port: 22"), "3:13", "a network"}, {host("cidr: 10.0.0.0/33, port: 22"), "3:13", "a network"},
		{host(`cidr: "fe80::1%eth0/64", port: 22`), "3:13", "a network"}, {host("cidr: 10.0.0.0/8, port: 80, sink: internal"), "3:", "write protocol: tcp"},
		{host("name: a b, host: a.test, tls: splice"), "3:13", "letters"}, {host("name: 'hosts[0]', host: a.test, tls: splice"), "3:13", "letters"}, {two("name: x, host: a.test, tls: splice", "name: x, host: b.test, tls: splice"), "4:13", "same name"},

		{host("host: a.test, tls: splice, inject: { secret: x }"), "3:34", "inject: it is not in this build (secrets that the gateway puts in)"}, {host("host: a.test, tls: splice, data: private"), "3:34", "not in this build"}, {host("host: a.test, tls: splice, capture: {}"), "3:34", "not in this build"},
		{host("host: a.test, tls: splice, client_auth: deny"), "3:34", "not in this build"}, {host("host: a.test, tls: splice, match: {}"), "3:34", "not in this build"}, {host("host: a.test, tls: splice, response: {}"), "3:34", "not in this build"}, {host("host: a.test, tls: splice, trust: x"), "3:34", "not in this build"},
		{"version: 1\ntaint: {}\n", "2:1", "not in this build"}, {"version: 1\nregistries: {}\n", "2:1", "not in this build"}, {"version: 1\ndlp: {}\n", "2:1", "not in this build"},
		{web("body: {}"), "3:42", "not in this build"}, {web("when: x"), "3:42", "not in this build"}, {web("git: fetch"), "3:42", "not in this build"}, {web("decide: ask"), "3:50", "not in this build"}, {host("host: a.test, tls: splice, methods: [GET]"), "3:", "write rules: [ { methods"},
		{web("method: [GET]"), "3:42", "did you mean methods?"}, {web("methods: GET"), "3:51", "a list"}, {web("methods: []"), "3:51", "empty"}, {web("methods: [get]"), "3:52", "write GET"}, {web("methods: [TRACE]"), "3:52", "allowed"}, {web("methods: [CONNECT]"), "3:52", "allowed"}, {web("methods: [GET, GET]"), "3:57", "twice"}, {web(`methods: ["*", GET]`), "3:51", "stands alone"},
		{web("paths: [a]"), "3:50", "begin with a slash"}, {web("paths: []"), "3:49", "empty"}, {web("paths: [/a/../b]"), "3:50", "write /b"}, {web("paths: [//a]"), "3:50", "write /a"}, {web("paths: [/%61]"), "3:50", "write /a"}, {web("paths: [/a%2fb]"), "3:50", "slash"}, {web("paths: [/a*]"), "3:50", "whole segment"}, {web("paths: [/**/a]"), "3:50", "at the end only"}, {web(`paths: ["/a?b"]`), "3:50", "encoded"},
		{web("rate: 0/s"), "3:48", "60/m"}, {web("tx_bytes: 0"), "3:52", "leave it out"}, {web("decide: deny, rate: 1/s"), "3:", "methods and paths only"}, {web("name: r }, { name: r"), "3:", "same name"},
		{host("host: a.test, tls: splice, rules: [ { methods: [GET] } ]"), "3:", "passes unread"}, {host("host: a.test, port: 22, protocol: tcp, rules: [ { paths: [/a] } ]"), "3:", "passes unread"}, {host("host: a.test, tls: splice, rules: [ { tx_bytes: 1k }, { rx_bytes: 1k } ]"), "3:", "passes unread"},

		{two("host: a.test, tls: splice", "host: a.test, port: 443, protocol: tcp"), "4:13", "overlaps with the entry hosts[0] (line 3)"}, {two(`host: "*.a.test", tls: splice`, "host: b.a.test, tls: splice, tx_bytes: 1k"), "4:13", "overlaps"}, {two("host: b.a.test, tls: splice, tx_bytes: 1k", `host: "*.a.test", tls: splice`), "4:13", "overlaps"},
		{two("host: a.test, port: 80", "host: a.test, port: 80, rules: [ { methods: [GET] } ]"), "4:13", "overlaps"}, {two("host: a.test, tls: splice", "host: a.test, tls: splice, sni: optional"), "4:13", "overlaps"}, {two("host: a.test, tls: splice", "host: a.test, tls: splice, cidr: 10.0.0.0/8, sink: internal"), "4:13", "overlaps"},
		{two("cidr: 10.0.0.0/8, port: 22, protocol: tcp, sink: internal", "cidr: 10.1.0.0/16, port: 22, protocol: tcp, sink: internal, rate: 1/s"), "4:", "overlaps"},
		{two("host: db.test, port: 22, protocol: tcp, cidr: 10.1.0.0/16, sink: internal", "cidr: 10.0.0.0/8, decide: deny"), "3:", "nothing reaches it: the entry hosts[1]"},
		{host("host: a.test, cidr: 10.0.0.0/8, decide: deny"), "3:", "a host or for a network"}, {host(`cidr: "::ffff:10.0.0.0/104", decide: deny`), "3:", "write the IPv4 network"}, {host("cidr: 10.0.0.1/8, decide: deny"), "3:", "write 10.0.0.0/8"},
		{two("host: a.test, tls: splice", "host: a.test, decide: deny"), "3:13", "nothing reaches it: the entry hosts[1] (line 4)"}, {two("host: b.a.test, tls: splice", `host: "*.a.test", decide: deny`), "3:13", "nothing reaches it"}, {two("cidr: 10.1.0.0/16, port: 22, protocol: tcp, sink: internal", "cidr: 10.0.0.0/8, decide: deny"), "3:", "nothing reaches it"},
		{web("paths: [/a], decide: deny"), "3:", `add { methods: ["*"] }`},
		{web("name: r, paths: [/a/b], methods: [GET] }, { name: d, paths: [/a/**], decide: deny"), "3:", "nothing reaches the rule r"}, {web("name: r, paths: [/a/**], rate: 1/s }, { name: s, paths: [/*/b]"), "3:", "the rule s overlaps with the rule r (line 3), which has other limits"},
	} {
		_, err := rules.Load("p.yaml", []byte(c.text))
		if err == nil {
			t.Errorf("%s: no error; want %q", c.text, c.want)
			continue
		}
		found := false
		for line := range strings.SplitSeq(err.Error(), "\n") {
			found = found || strings.HasPrefix(line, "p.yaml:"+c.place) && strings.Contains(line, c.want)
		}
		if !found {
			t.Errorf("%s: %v; want %s and %q", c.text, err, c.place, c.want)
		}
		wantKind := box.Invalid
		if strings.Contains(c.want, "not in this build") {
			wantKind = box.Unsupported
		}
		if all := settings.Errors(nil); !errors.As(err, &all) || all[0].Err.Kind != wantKind && strings.Contains(c.want, "not in this build") {
			t.Errorf("%s: %v: kind %v", c.text, err, box.KindOf(err))
		}
	}
}

// TestWhatDoesNotOverlapIsAccepted is the control of the overlaps above.
func TestWhatDoesNotOverlapIsAccepted(t *testing.T) {
	for _, text := range []string{
		"version: 1\n", "version: 1\nhosts: []\n",
		"version: 1\nhosts:\n  - { host: a.test, tls: splice }\n  - { host: a.test, port: 80 }\n",
		"version: 1\nhosts:\n  - { host: a.test, tls: splice }\n  - { host: '*.a.test', tls: splice, tx_bytes: 1k }\n",
		"version: 1\nhosts:\n  - { host: '*.a.test', tls: splice }\n  - { host: b.a.test, decide: deny }\n",
		"version: 1\nhosts:\n  - { host: a.test, port: 80, rules: [ { methods: [GET], paths: [/a/**], rate: 1/s }, { methods: [POST], paths: [/a/**] }, { methods: [GET], paths: [/b] } ] }\n",
		"version: 1\nhosts:\n  - { host: a.test, port: 80, rules: [ { paths: [/a/**] }, { paths: [/a/b], decide: deny } ] }\n",
		"version: 1\nhosts:\n  - { host: a.test, ports: [1, 2], protocol: tcp }\n  - { host: a.test, ports: [2], decide: deny }\n",
		"version: 1\nhosts:\n  - { host: a.test, tls: splice }\n  - { cidr: 8.8.0.0/16, decide: deny }\n",
		"version: 1\nhosts:\n  - { host: db.test, ports: [22, 23], protocol: tcp, cidr: 10.1.0.0/16, sink: internal }\n  - { cidr: 10.0.0.0/8, port: 22, decide: deny }\n",
		"version: 1\nhosts:\n  - { host: localhost, decide: deny }\n  - { host: '*.com.test', decide: deny }\n",
	} {
		if w, err := rules.Lint("p.yaml", []byte(text)); err != nil || len(w) > 0 {
			t.Errorf("%s: %v, warnings %v", text, err, w)
		}
	}
}

// TestWhatIsLikelyNotMeantIsAWarning has case H 99.
func TestWhatIsLikelyNotMeantIsAWarning(t *testing.T) {
	for host, want := range map[string]string{
		`{ host: "*.workers.dev", tls: splice }`: "many owners", `{ host: "*.blob.core.windows.net", tls: splice }`: "many owners", `{ host: "*.s3.eu-central-1.amazonaws.com", tls: splice }`: "many owners",
		`{ host: "*.compute.amazonaws.com", tls: splice }`: "many owners", `{ host: "*.run.app", tls: splice }`: "many owners", `{ host: "*.core.windows.net", tls: splice }`: "many owners",
		`{ host: "*.digitaloceanspaces.com", tls: splice }`: "many owners", `{ host: "*.city.kawasaki.jp", tls: splice }`: "", `{ host: "*.a.co.uk", tls: splice }`: "", `{ host: run.app, tls: splice }`: "",
		`{ host: "*.github.io", tls: splice }`: "many owners", `{ host: "*.amazonaws.com", tls: splice }`: "many owners", `{ host: "*.my.a.test", tls: splice }`: "",
		"{ host: a.test, tls: splice }\n  - { host: a.test, tls: splice }": "allows all of it already", "{ host: a.a.test, tls: splice }\n  - { host: '*.a.test', tls: splice }": "allows all of it already",
		"{ host: a.test, port: 80, rules: [ { paths: [/a/**] }, { paths: [/a/b] } ] }": "allows all that",
	} {
		w, err := rules.Lint("p.yaml", []byte("version: 1\nhosts:\n  - "+host+"\n"))
		if err != nil || (len(w) > 0) != (want != "") || want != "" && !strings.Contains(w.Error(), want) {
			t.Errorf("%s: %v, warnings %v; want %q", host, err, w, want)
		}
	}
}

func TestAllErrorsAreToldAtOnce(t *testing.T) {
	_, err := rules.Load("p.yaml", []byte("version: 1\nhosts:\n  - { host: A.test, tls: splice }\n  - { host: b.test }\n  - { hots: c.test }\n  - { host: d.test, inject: x }\n"))
	var all settings.Errors
	if !errors.As(err, &all) || len(all) != 4 || all[0].Line != 3 || all[1].Line != 4 || all[2].Line != 5 || all[3].Line != 6 {
		t.Fatalf("%v", err)
	}
}

// TestAnAddressThatIsDeniedIsDeniedByNameToo: a name is no way around an entry
// that denies a network.
func TestAnAddressThatIsDeniedIsDeniedByNameToo(t *testing.T) {
	p := policy(t, "version: 1\nhosts:\n  - { host: a.test, ports: [443, 444], tls: splice }\n  - { host: db.test, port: 5432, protocol: tcp, cidr: 10.0.0.0/8, sink: internal }\n  - { name: off, cidr: 93.184.0.0/16, port: 443, decide: deny }\n  - { name: backup, cidr: 10.9.0.0/16, decide: deny }\n")
	q, err := rules.Parse(p.JSON())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*rules.Policy{p, q} {
		for _, c := range []struct {
			name hostname.Name
			to   string
			rule string // empty: allowed
		}{
			{"a.test", "93.185.0.1:443", ""}, {"a.test", "93.184.0.1:444", ""}, {"a.test", "93.184.0.1:443", "off"}, {"a.test", "[::ffff:93.184.0.1]:443", "off"},
			{"db.test", "10.8.0.1:5432", ""}, {"db.test", "10.9.0.1:5432", "backup"},
		} {
			to := netip.MustParseAddrPort(c.to)
			h, v := p.Host(c.name, to.Port())
			if h == nil {
				t.Fatalf("%s: %+v", c.name, v)
			}
			if v := h.Address(special.Table{}, to); v.Allow != (c.rule == "") || c.rule != "" && (v.Rule != c.rule || v.Code != rules.DeniedByRule) {
				t.Errorf("%s at %s: %+v", c.name, c.to, v)
			}
		}
	}
}

// TestMetadataIsReachedByNoWildcard: some of its names lie below a domain that
// has other hosts.
func TestMetadataIsReachedByNoWildcard(t *testing.T) {
	p := policy(t, "version: 1\nhosts:\n  - { host: '*.packet.net', ports: [80], protocol: http }\n")
	for _, n := range []hostname.Name{"metadata.packet.net", "x.metadata.packet.net"} {
		if h, v := p.Host(n, 80); h != nil || v.Allow || v.Code != rules.BadName || v.Fix != "" || p.Name(n) {
			t.Errorf("%s: %+v", n, v)
		}
	}
	if _, v := p.Host("www.packet.net", 80); !v.Allow || !p.Name("www.packet.net") { // the control
		t.Errorf("a host beside it: %+v", v)
	}
}

// TestWhatDeniesIsReadWidely: each spelling that some server takes for the
// denied path is denied; the last ones are other paths.
func TestWhatDeniesIsReadWidely(t *testing.T) {
	h, _ := policy(t, "version: 1\nhosts:\n  - { host: a.test, port: 80, rules: [ { paths: ['/**'] }, { name: no, paths: ['/%C3%A9t%C3%A9/**', /admin], decide: deny } ] }\n").Host("a.test", 80)
	if h == nil {
		t.Fatal("the host is denied")
	}
	for path, want := range map[string]bool{
		"/admin": false, "/admin/": false, "/ADMIN": false, "/admin;x=1": false, "/admin.": false, "/admin%20": false, "/admin%3Bx": false, "/admin%C2%A0": false, "/admin%E2%80%8B": false, "/admin%EF%BC%9Bx": false, "/Admin.;x/": false,
		"/admin%3Fx": false, "/admin%23": false, "/admin%3f/other": false, "/ad%C2%ADmin": false, "/%EF%BD%81dmin": false, "/adm%C4%B1n": false, "/admin::$DATA": false, "/admin:$I30:$INDEX_ALLOCATION": false,
		"/admin.json": false, "/ADMIN.Html;x": false, "/admin.json/": false, "/%C3%A9t%C3%A9.xml": false, "/admin.2": false, "/admin.a-b": false, "/admin.v2.json": true, "/admin.json/x": true,
		"/%20admin": false, "/admin:x;y::$DATA": false, "/admin%3Fx/y/z": false, "/x/admin%3F": true, "/admin.json%3Fx": false,
		"/admin:x": true, "/x%3Fadmin": true, "/b%C4%B1n": true,
		"/%C3%89T%C3%89/x": false, "/%C3%A9t%C3%A9": false,
		"/admin/x": true, "/administrator": true, "/x/admin": true, "/%C3%A9tx": true, "/": true,
		// In other forms, with and without accents, and with marks of which nothing is seen.
		"/%C3%A9te": false, "/ete/x": false, "/E%CC%81TE%CC%81": false, "/%E2%93%90dmin": false, "/%F0%9D%90%9Admin": false, "/%E1%B5%83dmin": false, "/a%C4%8Fmin": false, "/ad%CD%8Fmin": false, "/admin%EF%B8%8F": false, "/%E3%85%A4admin": false,
		"/admin%E1%85%9F": false, "/adm%E2%85%B0n": false, "/admin%EF%B9%96": false, "/admin%E2%81%87": false, "/admin%EF%B9%94x": false, "/admin%C2%A8": false, "/%D0%B0dmin": true, "/admin%E3%80%82": true,
	} {
		if v := h.Request(rules.Request{Method: "GET", Path: path}); v.Allow != want {
			t.Errorf("%s: %+v", path, v)
		}
	}
}

// A rule is for a method and a path; a query that names another method, or bytes where
// a request only asks, would make something else of it.
func TestARuleIsForNothingMoreThanItSays(t *testing.T) {
	p := policy(t, "version: 1\nhosts:\n  - { host: a.test, port: 80, rules: [ { name: all } ] }\n  - { host: b.test, port: 80 }\n")
	ruled, _ := p.Host("a.test", 80)
	free, _ := p.Host("b.test", 80)
	for _, c := range []struct {
		r    rules.Request
		want rules.Code
	}{
		{rules.Request{Method: "GET"}, rules.Allowed}, {rules.Request{Method: "GET", Body: true}, rules.BodyClosed},
		{rules.Request{Method: "HEAD", Body: true}, rules.BodyClosed}, {rules.Request{Method: "OPTIONS", Body: true}, rules.BodyClosed},
		{rules.Request{Method: "POST", Body: true}, rules.Allowed}, {rules.Request{Method: "DELETE", Body: true}, rules.Allowed},
		{rules.Request{Method: "POST", Query: "?_method=DELETE"}, rules.Overridden}, {rules.Request{Method: "POST", Query: "a&+_Method"}, rules.Overridden},
		{rules.Request{Method: "POST", Query: "a?%5fmethod%5B%5D=x"}, rules.Overridden}, {rules.Request{Method: "GET", Query: "x;_HTTP_METHOD=x"}, rules.Overridden},
		{rules.Request{Method: "POST", Query: "X-HTTP-Method-Override=DELETE"}, rules.Overridden}, {rules.Request{Method: "POST", Query: "x.http.method.override=DELETE"}, rules.Overridden},
		{rules.Request{Method: "POST", Query: "$method=DELETE&%zz"}, rules.Overridden},
		{rules.Request{Method: "POST", Query: "?method=_method&http=method&a_method=b&methods=c&[=]&=&%zz"}, rules.Allowed},
	} {
		c.r.Path = "/x"
		if v := ruled.Request(c.r); v.Code != c.want || v.Allow != (c.want == rules.Allowed) || v.Rule != "hosts[0]/all" {
			t.Errorf("%+v: %+v, want %s", c.r, v, c.want)
		}
		if v := free.Request(c.r); !v.Allow {
			t.Errorf("an entry without rules: %+v: %+v", c.r, v)
		}
	}
}

// A star is no way to another path for a server that ends a path at an encoded question
// mark or hash: what it then reads must be allowed, too.
func TestAStarStandsForNoEndOfAPath(t *testing.T) {
	h, _ := policy(t, "version: 1\nhosts:\n  - { host: a.test, port: 80, rules: [ { paths: ['/r/*/comments', '/w/*', '/q/x%3Fy/z', '/d/*/**'] }, { name: no, paths: ['/w/*/kill', '/d/*/kill'], decide: deny } ] }\n").Host("a.test", 80)
	for path, want := range map[string]bool{
		"/r/x/comments": true, "/r/x%3Fy/comments": false, "/r/x%23/comments": false, "/r/%3F/comments": false,
		"/w/x": true, "/w/What%3F": true, "/w/a%23b": true, "/w/%3F": false, "/q/x%3Fy/z": true,
		"/d/x%3F/y": true, "/d/x": true, "/d/x/kill": false, "/d/x%3F/kill": false, "/d/x%3Fy/kill": false, "/d/x/kill%3Fy": false,
	} {
		if v := h.Request(rules.Request{Method: "GET", Path: path}); v.Allow != want {
			t.Errorf("%s: %+v", path, v)
		}
	}
}
