package rules_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/egress/special"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

func short(t *testing.T, entries ...string) *rules.Policy {
	t.Helper()
	p, err := rules.FromAllowlist(entries)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAnEmptyListAllowsNothing has case L 136 of the attack list.
func TestAnEmptyListAllowsNothing(t *testing.T) {
	for name, p := range map[string]*rules.Policy{"nil": short(t), "empty": short(t, []string{}...), "zero": new(rules.Policy)} {
		for _, n := range []hostname.Name{"a.test", "example.com", "localhost", "", "com"} {
			if _, v := p.Host(n, 443); v.Allow || v.Code != rules.NotListed || p.Name(n) {
				t.Errorf("%s: %q is allowed: %+v", name, n, v)
			}
		}
		for _, a := range []string{"10.0.0.1:443", "8.8.8.8:53", "[::1]:80"} {
			if h, v := p.CIDR(netip.MustParseAddrPort(a)); v.Allow || h != nil {
				t.Errorf("%s: %s is allowed: %+v", name, a, v)
			}
		}
	}
	if h, v := short(t, "a.test").Host("a.test", 443); !v.Allow || h == nil { // the control
		t.Errorf("an entry allows nothing: %+v", v)
	}
}

func TestTheShortFormMeansHostAndPort(t *testing.T) {
	p := short(t, "api.example.com:443", "www.example.com", "plain.example.com:80", "*.wild.example.com:8443", "ssh.example.com:22/tcp", "*.wild.example.com:8080/http", "plain.example.com:443/http")
	for _, c := range []struct {
		name hostname.Name
		port uint16
		mode rules.Mode
		code rules.Code
		fix  string
	}{
		{"api.example.com", 443, rules.Splice, rules.Allowed, ""},
		{"www.example.com", 443, rules.Splice, rules.Allowed, ""},
		{"plain.example.com", 80, rules.HTTP, rules.Allowed, ""},
		{"a.wild.example.com", 8443, rules.Splice, rules.Allowed, ""},
		{"wild.example.com", 8443, "", rules.NotListed, "wild.example.com:8443"},
		{"ssh.example.com", 22, rules.TCP, rules.Allowed, ""},
		{"a.wild.example.com", 8080, rules.HTTP, rules.Allowed, ""},
		{"plain.example.com", 443, rules.HTTP, rules.Allowed, ""},
		{"api.example.com", 22, "", rules.PortClosed, "api.example.com:22/tcp"},
		{"db.example.com", 5432, "", rules.NotListed, "db.example.com:5432/tcp"},
		{"api.example.com", 8443, "", rules.PortClosed, "api.example.com:8443"},
		{"api.example.com", 80, "", rules.PortClosed, "api.example.com:80"},
		{"example.com", 443, "", rules.NotListed, "example.com:443"},
		{"api.example.com.evil.test", 443, "", rules.NotListed, "api.example.com.evil.test:443"},
		{"xapi.example.com", 443, "", rules.NotListed, "xapi.example.com:443"},
		{"metadata.google.internal", 80, "", rules.BadName, ""},
		{"localhost", 80, "", rules.NotListed, ""},
	} {
		h, v := p.Host(c.name, c.port)
		if v.Code != c.code || v.Allow != (c.code == rules.Allowed) || v.Fix != c.fix || v.Reason == "" || (h != nil) != v.Allow {
			t.Errorf("%s:%d: %+v", c.name, c.port, v)
		}
		if h != nil && h.Mode != c.mode {
			t.Errorf("%s:%d: mode %s", c.name, c.port, h.Mode)
		}
		if v.Fix != "" {
			if _, again := short(t, v.Fix).Host(c.name, c.port); !again.Allow {
				t.Errorf("the fix %q does not allow %s:%d", v.Fix, c.name, c.port)
			}
		}
	}
	if v := (&p.Hosts[0]).Address(special.Table{}, netip.MustParseAddrPort("169.254.169.254:443")); v.Allow || v.Code != rules.BadAddress {
		t.Errorf("an address of metadata: %+v", v)
	}
	if v := (&p.Hosts[0]).Address(special.Table{}, netip.MustParseAddrPort("93.184.216.34:443")); !v.Allow {
		t.Errorf("a public address: %+v", v)
	}
}

// TestEntriesThatMeanTooMuchAreRefused has the cases A 2, 13 and 14.
func TestEntriesThatMeanTooMuchAreRefused(t *testing.T) {
	for entry, want := range map[string]string{
		"": "empty", "*": "a star alone would be everything", "*:443": "a star alone would be everything", "*.com": "top-level", "*.co.uk": "anybody can register", "*.kawasaki.jp": "anybody can register", "*.nom.br:443": "anybody can register", "*.foo.ck": "anybody can register", "ex*mple.com:443": "star", "example.*:443": "star", "a.*.com": "star",
		"https://example.com": "write example.com", "http://example.com/x?y": "write example.com:80", "https://example.com:8443/": "write example.com:8443", "https://*.com": "host:port", "example.com/x": "it has a path, and an entry is for all of a host; write example.com", "example.com/tcp": "write example.com:PORT/tcp", ".example.com": "write *.example.com, and for itself example.com", "example.com:": "port",
		"example.com:22/ssh": "allowed: http, tcp", "example.com:22/": "allowed: http, tcp", "example.com:22/tcp/": "host:port", "*.example.com:22/tcp": "one host", "a.test,b.test": "each by itself", "example.com:0": "port", "example.com:65536": "port", "example.com:0443": "port", "example.com:+443": "port",
		"example.com:443:1": "host:port", "example.com:https": "port", "[::1]:443": "nothing can allow it: it is unspecified, loopback", "10.0.0.1:443": "{ cidr: 10.0.0.1/32, port: 443, protocol: tcp, sink: internal }", "2130706433:80": "IP address", "10.0.0.0/8": "{ cidr: 10.0.0.0/8, port: PORT,",
		"8.8.8.8": "IP address, not a name, and nothing can allow it", "169.254.169.254:80": "metadata", "10.2.0.7/24:5432": "cidr: 10.2.0.0/24, port: 5432", "fd00::1": "cidr: fd00::1/128",
		"Example.com": "write example.com", "example.com.:443": "write example.com", "example.com:443\n": "port", "example.com #:443": "character", "a b:443": "character", " example.com": "character",
		"localhost:80": "asking machine", "foo.localhost": "asking machine", "a.local:5432": "it takes a policy file with - { host: a.local, port: 5432, protocol: tcp, cidr: NETWORK, sink: internal }", "metadata.google.internal:80": "metadata", "host.docker.internal": "cidr", "intranet": "cidr", "*.corp.internal": "private network",
		"http://example.com:8080/x": "write example.com:8080/http", "ws://example.com": "write example.com:80", "wss://example.com:8443": "write example.com:8443", "tcp://example.com:22": "write example.com:22/tcp",
		"ssh://git@example.com/x": "write example.com:22/tcp", "postgres://u:p@db.example.com/x": "write db.example.com:5432/tcp", "amqp://example.com": "write example.com:PORT/tcp",
		"10.0.0.1:5432/tcp": "{ cidr: 10.0.0.1/32, port: 5432, protocol: tcp, sink: internal }", "[fd00::1]:80/http": "cidr: fd00::1/128, port: 80", "8.8.8.8:53/tcp": "nothing can allow it: it is public",
		"x.onion": "never asked", "example.com:53": "port 53",
	} {
		if _, err := rules.FromAllowlist([]string{"ok.test", entry}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("FromAllowlist(%q): %v; want %q", entry, err, want)
		}
	}
}

func TestThePolicyTravelsAsItIs(t *testing.T) {
	p := short(t, "api.example.com:443", "plain.example.com:80", "*.wild.example.com")
	q, err := rules.Parse(p.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if p.Digest() != q.Digest() || len(p.Digest()) != 64 || p.Digest() == short(t).Digest() {
		t.Errorf("digests %s and %s", p.Digest(), q.Digest())
	}
	if _, v := q.Host("a.wild.example.com", 443); !v.Allow {
		t.Errorf("what came out: %+v", v)
	}
	for _, text := range []string{
		"", "{}", "null", "[]", strings.Replace(string(p.JSON()), `"version":1`, `"version":2`, 1), string(p.JSON()) + " ", string(p.JSON()) + "{}",
		strings.Replace(string(p.JSON()), `"short":true`, `"shorter":true`, 1), strings.Replace(string(p.JSON()), "api.example.com", "*.com", 2),
		strings.Replace(string(p.JSON()), `"hosts":[`, `"hosts":[{"name":"x","host":"localhost","ports":[80],"mode":"http"},`, 1),
		strings.Replace(string(p.JSON()), `"mode":"splice"`, `"mode":""`, 1), strings.Replace(string(p.JSON()), `"mode":"splice"`, `"mode":"inspect"`, 1),
	} {
		if q, err := rules.Parse([]byte(text)); err == nil {
			t.Errorf("Parse took %s as %+v", text, q)
		}
	}
}

func TestAListHasWarningsToo(t *testing.T) {
	if w := short(t, "api.example.com", "*.example.org").Warnings(); len(w) > 0 {
		t.Errorf("%q", w)
	}
	w := short(t, "*.workers.dev", "a.test", "a.test:443").Warnings()
	if all := strings.Join(w, "\n"); len(w) != 2 || !strings.Contains(all, "the entry a.test allows all of it already") || !strings.Contains(all, "many owners") {
		t.Errorf("%q", w)
	}
	if w := short(t, "*.workers.dev").Warnings(); len(w) != 1 || !strings.Contains(w[0], "many owners") {
		t.Errorf("%q", w)
	}
}

// TestTheShortFormIsTheLongForm: one line of the short form is taken if what it says
// in the long form is, and means that and nothing else.
func TestTheShortFormIsTheLongForm(t *testing.T) {
	taken, refused := 0, 0
	for _, host := range []string{"a.example.com", "*.a.example.com", "*.com", "*.co.uk", "*.kawasaki.jp", "*", "*.localhost", "xn--bcher-kva.example", "b\u00fccher.example", "A.example.com", "a.example.com.", "a..b", "localhost", "x.localhost", "intranet",
		"a.internal", "*.internal", "metadata.google.internal", "x.onion", "10.0.0.1", "2130706433", "1.0", "0x7f.1", "x.in-addr.arpa", "a_b.example.com", "-a.example.com", "a b.example.com", "", strings.Repeat("a", 64) + ".com"} {
		for _, port := range []string{"", "80", "443", "22", "53", "8080", "65535", "65536", "0", "080", "-1", "+80", "1e2"} {
			for _, protocol := range []string{"", "http", "tcp"} {
				short, long := host, fmt.Sprintf("host: %q", host)
				if port != "" {
					short, long = short+":"+port, long+", port: "+port
				}
				switch {
				case protocol != "":
					short, long = short+"/"+protocol, long+", protocol: "+protocol
				case port != "80":
					long += ", tls: splice"
				}
				if port == "" && protocol != "" {
					continue // the short form has no protocol without a port
				}
				p, err := rules.FromAllowlist([]string{short})
				want, wrong := rules.Load("p.yaml", []byte("version: 1\nhosts: [ { "+long+" } ]\n"))
				if (err == nil) != (wrong == nil) {
					t.Errorf("%q: %v, and { %s }: %v", short, err, long, wrong)
				}
				if err != nil || wrong != nil {
					refused++
					continue
				}
				taken++
				got := *p
				got.Short, got.Hosts = false, slices.Clone(p.Hosts)
				got.Hosts[0].Name = want.Hosts[0].Name
				if string(got.JSON()) != string(want.JSON()) {
					t.Errorf("%q is %s, and { %s } is %s", short, got.JSON(), long, want.JSON())
				}
			}
		}
	}
	if taken < 40 || refused < 400 {
		t.Errorf("%d were taken, %d refused", taken, refused)
	}
}
