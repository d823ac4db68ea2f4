package main

import (
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestARequestsSandboxIsReadAsAFileIs(t *testing.T) {
	w, err := wishOf([]byte(`{"trust":"trusted","resource_limits":{"memory":"64m"},"env":{"A":"\ud83d\ude00 x"}}`))
	if err != nil || w.Policy.Trust != box.Trusted || w.Policy.Spec.Limits.Memory != 64<<20 || strings.Join(w.Env, ";") != "A=😀 x" {
		t.Errorf("%v, %+v", err, w)
	}
	for _, empty := range []string{"", "null", " {} "} {
		if w, err := wishOf([]byte(empty)); err != nil || w.Policy.Trust != box.Untrusted {
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
		`{"network":{"allowlist":["a.test"]}}`:                                "no effect",
		`{}{}`:                                                                "no JSON object",
	} {
		if _, err := wishOf([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something with %q", bad, err, want)
		}
	}
}
