package main

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// What is denied is told with the fix of its time; where rules changed since, following
// that would be an error.
func TestADenialIsToldWithWhatAllowsItNow(t *testing.T) {
	list := func(entries ...string) *rules.Policy {
		p, err := rules.FromAllowlist(entries)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	file, err := rules.Load("p.yaml", []byte("version: 1\nhosts:\n  - { host: a.test, tls: splice }\n  - { host: bad.test, decide: deny }\n"))
	if err != nil {
		t.Fatal(err)
	}
	name := func(n, fix string) box.Denial {
		return box.Denial{Kind: "dns", Name: n, Code: "host_not_allowed", Fix: fix}
	}
	port := box.Denial{Kind: "connect", Name: "b.test", Port: 22, Code: "port_not_allowed", Fix: "b.test:22/tcp"}
	for what, c := range map[string]struct {
		d    box.Denial
		now  *rules.Policy
		want string // its end
	}{
		"a run's":                     {name("b.test", "b.test:443"), nil, "; to allow it on port 443: --also b.test:443"},
		"a list still":                {name("b.test", "b.test:443"), list("a.test"), "; to allow it on port 443: --also b.test:443"},
		"allowed since":               {name("b.test", "b.test:443"), list("b.test:80"), "; it is allowed now"},
		"a file since":                {name("b.test", "b.test:443"), file, "; to allow it on port 443: - { host: b.test, tls: splice }"},
		"a list since":                {name("b.test", "- { host: b.test, tls: splice }"), list(), "; to allow it on port 443: --also b.test:443"},
		"denied by the file since":    {name("bad.test", "bad.test:443"), file, ": host_not_allowed"},
		"a port, and a file since":    {port, file, "; to allow it: - { host: b.test, port: 22, protocol: tcp }"},
		"a port, allowed since":       {port, list("b.test:22/tcp"), "; it is allowed now"},
		"what no rules of now answer": {box.Denial{Kind: "connect", Name: "a.test", Port: 443, Code: "not_tls", Fix: "a.test:443/tcp in place of a.test"}, list("a.test"), "; to allow it: --also a.test:443/tcp in place of a.test"},
	} {
		got := denialWords([]box.Denial{c.d}, "--also", c.now)
		if len(got) != 1 || !strings.HasSuffix(got[0], c.want) {
			t.Errorf("%s: %q; want an end in %q", what, got, c.want)
		}
	}
}
