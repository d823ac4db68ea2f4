package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestARequestsSandboxIsReadAsAFileIs(t *testing.T) {
	w, err := wishOf([]byte(`{"trust":"trusted","resource_limits":{"memory":"64m"},"env":{"A":"\ud83d\ude00 x"}}`), networkBounds{})
	if err != nil || w.Policy.Trust != box.Trusted || w.Policy.Spec.Limits.Memory != 64<<20 || strings.Join(w.Env, ";") != "A=😀 x" {
		t.Errorf("%v, %+v", err, w)
	}
	for _, empty := range []string{"", "null", " {} "} {
		if w, err := wishOf([]byte(empty), networkBounds{}); err != nil || w.Policy.Trust != box.Untrusted {
			t.Errorf("%q: %v", empty, err)
		}
	}
	for bad, want := range map[string]string{
		`{"trust":"trusted","nonsense":1}`:      "sandbox:1:20: ",
		"{\n\"trust\":\"no\"}":                  "sandbox:2:",
		`{"trust":"trusted","trust":"hostile"}`: "trust",
		`[]`:                                    "no JSON object",
		`{"trust":}`:                            "no JSON object",
		`{"filesystem":{"host_prefixes":["/opt/tools"]}}`:                     "host_prefixes",
		`{"network":{"mode":"allowlist","policy":"/etc/sunaba/policy.yaml"}}`: "network.policy in a request",
		`{"network":{"mode":"allowlist","allowlist":["*.com"]}}`:              "top-level",
		`{"network":{"mode":"none","allowlist":["a.test"]}}`:                  "no effect",
		`{}{}`: "no JSON object",
	} {
		if _, err := wishOf([]byte(bad), networkBounds{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something with %q", bad, err, want)
		}
	}
}

// TestAllThatIsWrongWithARequestIsTold at once, with its place: of rules, too.
func TestAllThatIsWrongWithARequestIsTold(t *testing.T) {
	_, err := wishOf([]byte(`{"network":{"rules":{"version":1,"hosts":[{"host":"A.b","tls":"splice"},
{"host":"x.test","tls":"inspect"}]}}}`), networkBounds{})
	var e *box.Error
	if !errors.As(err, &e) || e.Kind != box.Invalid || !strings.Contains(e.Message, "sandbox:1:51: cannot set host to \"A.b\"") || !strings.Contains(e.Message, "sandbox:2:24: cannot use tls: inspect") {
		t.Errorf("%v", err)
	}
	_, err = wishOf([]byte(`{"env":{`+strings.Repeat(`"1":"",`, 30)+`"2":""}}`), networkBounds{})
	if !errors.As(err, &e) || strings.Count(e.Message, "\n") != 10 || !strings.Contains(e.Message, "and ") {
		t.Errorf("%v", err)
	}
}

// TestRequestsReachNoNetworkOfTheOperators: rules over the network are the
// caller's; the networks, resolvers and memory of this host are not.
func TestRequestsReachNoNetworkOfTheOperators(t *testing.T) {
	with := func(rules string) []byte {
		return []byte(`{"network":{"mode":"allowlist","rules":{"version":1,` + rules + `}}}`)
	}
	some := networkBounds{networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}}
	for _, c := range []struct {
		rules  string
		bounds networkBounds
		want   string // empty: allowed
	}{
		{`"hosts":[{"host":"a.test","tls":"splice"}]`, networkBounds{}, ""},
		{`"hosts":[{"host":"a.test","tls":"splice"},{"cidr":"10.0.0.0/8","decide":"deny"}]`, networkBounds{}, ""},
		{`"hosts":[{"host":"db.test","port":5432,"protocol":"tcp","cidr":"10.2.3.0/24","sink":"internal"}]`, networkBounds{}, "10.2.3.0/24 is private"},
		{`"hosts":[{"host":"db.test","port":5432,"protocol":"tcp","cidr":"10.2.3.0/24","sink":"internal"}]`, some, ""},
		{`"hosts":[{"cidr":"10.2.0.0/16","port":5432,"protocol":"tcp","sink":"internal"}]`, some, ""},
		{`"hosts":[{"cidr":"10.0.0.0/8","port":5432,"protocol":"tcp","sink":"internal"}]`, some, "10.0.0.0/8 is private"},
		{`"hosts":[{"cidr":"10.3.0.0/24","port":5432,"protocol":"tcp","sink":"internal"}]`, some, "10.3.0.0/24 is private"},
		{`"hosts":[{"cidr":"10.0.0.0/8","port":5432,"protocol":"tcp","sink":"internal"}]`, networkBounds{own: true}, ""},
		{`"dns":{"resolvers":["127.0.0.1:6379"]}`, some, "dns.resolvers in a request"},
		{`"dns":{"resolvers":["127.0.0.1:6379"]}`, networkBounds{own: true}, ""},
		{`"dns":{"resolvers":["system"]}`, networkBounds{}, ""},
		{`"limits":{"conns":257}`, some, "limits.conns to 257"},
		{`"limits":{"conns":8,"tx_bytes":"1t","rate":"9999/s"}`, networkBounds{}, ""},
		{`"limits":{"header_bytes":"64k"}`, some, "limits.header_bytes"},
		{`"limits":{"idle":"10m"}`, some, ""},
		{`"limits":{"idle":"601s"}`, some, "limits.idle to 10m1s"},
		{`"limits":{"idle":"601s"}`, networkBounds{own: true}, ""},
	} {
		w, err := wishOf(with(c.rules), c.bounds)
		switch {
		case c.want == "" && (err != nil || len(w.Policy.Reach) == 0):
			t.Errorf("%s: %v", c.rules, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || box.KindOf(err) != box.Denied):
			t.Errorf("%s: %v, want a denial with %q", c.rules, err, c.want)
		}
	}
	for _, bad := range []string{"10.0.0.1", "0.0.0.0/0", "8.8.8.0/24", "127.0.0.0/8", "169.254.0.0/16", "::ffff:10.0.0.0/104"} {
		if p, err := parseNetwork(bad); err == nil {
			t.Errorf("--allow-network %s: %s", bad, p)
		}
	}
}
