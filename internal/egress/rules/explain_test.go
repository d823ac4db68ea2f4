package rules_test

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

func TestAnExplanationSaysWhichRuleDecides(t *testing.T) {
	p := policy(t, long)
	for _, c := range []struct {
		method, url string
		code        rules.Code
		rule, says  string
	}{
		{"", "https://api.example.com/v1", rules.Allowed, "api", "method and path are not seen"},
		{"DELETE", "https://API.example.com./v1?x=1#y", rules.Allowed, "api", "the entry api (line 6)"},
		{"", "http://api.example.com/", rules.PortClosed, "api", "not for port 80"},
		{"", "http://api.example.com:443/", rules.NotTLS, "api", "refused by its first bytes"},
		{"", "https://plain.example.com:80/status", rules.NotPlain, "plain", "plain HTTP"},
		{"", "http://plain.example.com/status", rules.Allowed, "plain/read", "rule plain/read"},
		{"", "http://plain.example.com/x/%2e%2e/status", rules.Allowed, "plain/read", "/status"},
		{"POST", "http://plain.example.com/status", rules.MethodClosed, "plain", "no rule"},
		{"", "http://plain.example.com/gists/1", rules.DeniedByRule, "plain/no-gists", "denied"},
		{"", "http://plain.example.com/a%2fb", rules.PathRefused, "plain", "encoded slash"},
		{"", "http://plain.example.com/status?q=\u00e9", rules.URLCharacter, "plain", "must be encoded"},
		{"", "http://plain.example.com/status?q=" + strings.Repeat("x", 8<<10), rules.URLLong, "plain", "limits.url_bytes is 4096"},
		{"", "http://plain.example.com/status?a=b&_method=DELETE", rules.Overridden, "plain/read", "another method"},
		{"", "http://other.test/a%2fb", rules.NotListed, "", "not answered (NXDOMAIN)"},
		{"", "https://evil.test", rules.NotListed, "", "no entry"},
		{"", "https://bad.pages.example.com:8080/", rules.DeniedByRule, "hosts[4]", "not answered"},
		{"", "tcp://db.internal.example.com:5432", rules.Allowed, "hosts[5]", "must lie in 10.2.0.0/24"},
		{"", "http://db.internal.example.com:5432/", rules.Allowed, "hosts[5]", "whatever is spoken"},
		{"", "tcp://10.3.1.1:6379", rules.Allowed, "hosts[6]", "is an address"},
		{"", "https://api.example.com:443/", rules.Allowed, "api", "none of them may lie in 10.3.9.0/24, which the entry hosts[7] (line "},
		{"", "tcp://8.8.8.8:53", rules.NotListed, "", "the gateway's own resolver"},
		{"", "tcp://api.example.com:53", rules.PortClosed, "api", "the gateway's own resolver"},
		{"", "http://127.0.0.1/", rules.NotListed, "", "loopback"},
		{"", "http://[::ffff:169.254.169.254]/", rules.NotListed, "", "metadata"},
		{"", "http://[fe80::1%25eth0]/", rules.NotListed, "", "zone"},
		{"", "http://2130706433/", "name_address", "", "IP address"},
		{"", "http://0x7f.1/", "name_address", "", "IP address"},
		{"", "http://e\x00.test/", "name_character", "", `\x00`},
	} {
		q, err := rules.ParseQuestion(c.method, c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		a := p.Explain(q)
		if a.Code != c.code || a.Rule != c.rule || a.Allow != (c.code == rules.Allowed) || !strings.Contains(strings.Join(a.Steps, "\n"), c.says) || a.Steps[len(a.Steps)-1] != a.Reason {
			t.Errorf("%s %.100s: %+v\nwant %s by %q, with %q", c.method, c.url, a, c.code, c.rule, c.says)
		}
	}
	for _, url := range []string{"", "a.test", "ftp://a.test/", "HTTP://a.test/", "https://user@a.test/", "http://a.test:0/", "http://a.test:x/", "tcp://a.test", "tcp://a.test:1/x", "//a.test", "http:a.test", "http://a.test:080/", "http://a.test:80:80/x"} {
		if q, err := rules.ParseQuestion("", url); err == nil && p.Explain(q).Allow {
			t.Errorf("%q is %+v", url, q)
		} else if err == nil && url != "http://a.test:80:80/x" {
			t.Errorf("%q is read", url)
		}
	}
}

func TestATableOfExpectationsIsRead(t *testing.T) {
	got, err := rules.ParseExpectations("t", "# what we promise\nallow https://a.test/x\n\n deny POST http://a.test:8080/x#frag  # a remark\ndeny http://2130706433/\r\n")
	if err != nil || len(got) != 3 || !got[0].Allow || got[1].Allow || got[1].Line != 4 || got[1].Method != "POST" || got[1].Port != 8080 || got[1].Text != "POST http://a.test:8080/x#frag" || got[2].Allow {
		t.Fatalf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"": "no expectation", "# nothing\n": "no expectation", "allow\n": "t:1", "\npermit https://a.test\n": "t:2", "allow GET https://a.test x\n": "t:1", "allow ftp://a.test\n": "t:1", "Allow https://a.test\n": "t:1",
	} {
		if _, err := rules.ParseExpectations("t", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestADiffIsReadByPeople(t *testing.T) {
	before := policy(t, "version: 1\nhosts:\n  - { host: a.test, port: 80, rules: [ { methods: [GET], paths: [/a/**] }, { paths: [/a/x/**], decide: deny } ] }\n  - { host: gone.test, tls: splice }\n  - { host: '*.w.test', tls: splice }\n  - { host: bad.w.test, decide: deny }\n")
	after := policy(t, "version: 1\nlimits: { conns: 300, tx_bytes: 1k }\nhosts:\n  - { host: a.test, port: 80, rules: [ { methods: [GET, POST], paths: [/a/**], rate: 1/s } ] }\n  - { host: new.test, tls: splice }\n  - { host: db.test, port: 5432, protocol: tcp, cidr: 10.0.0.0/24, sink: internal }\n  - { host: '*.w.test', tls: splice }\n  - { cidr: 10.1.0.0/16, port: 22, protocol: tcp, sink: internal }\n")
	var got []string
	for _, r := range rules.Diff(before, after) {
		got = append(got, map[bool]string{true: "+", false: "-"}[r.Added]+" "+r.Text)
	}
	want := strings.Split(`+ reaches a.test port 80: POST on /a/** (plain HTTP)
+ reaches new.test port 443 (TLS, unread)
+ reaches db.test in 10.0.0.0/24 port 5432 (raw, unread; private network)
+ reaches addresses of 10.1.0.0/16 port 22 (raw, unread; private network)
+ no longer denies a.test port 80: every method on /a/x/**
+ no longer denies bad.w.test
- no longer reaches gone.test port 443 (TLS, unread)
+ limit conns: 300, was 256
- limit tx_bytes: 1024, was no limit
- a.test rule rules[0] rate: 1/s, was no limit`, "\n")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
