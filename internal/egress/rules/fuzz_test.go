package rules_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/hostname"
	"github.com/sunaba-dev/sunaba/internal/settings"
)

// FuzzLoad: whatever a file says, it is refused with places, or becomes a
// policy that travels and allows nothing that none may.
func FuzzLoad(f *testing.F) {
	f.Add(long)
	f.Add("version: 1\nhosts:\n  - { host: a.test, tls: splice }\n")
	f.Add("version: 1\nhosts: [{host: '*.a.test', ports: [80, 8080], protocol: http, rules: [{paths: ['/**']}]}, {cidr: 10.0.0.0/8, decide: deny}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := rules.Load("p.yaml", []byte(text))
		if err != nil {
			var all settings.Errors
			if !errors.As(err, &all) || len(all) == 0 {
				t.Fatalf("%v", err)
			}
			for _, e := range all {
				if e.Line < 1 || e.Column < 1 || e.Err.Message == "" {
					t.Fatalf("an error without a place: %+v", e)
				}
			}
			return
		}
		q, err := rules.Parse(p.JSON())
		if err != nil || !bytes.Equal(p.JSON(), q.JSON()) {
			t.Fatalf("it does not travel: %v", err)
		}
		for _, n := range []hostname.Name{"localhost", "metadata.google.internal", "x.localhost", "metadata", "x.onion", ""} {
			for _, port := range []uint16{0, 53, 80, 443} {
				if _, v := p.Host(n, port); v.Allow {
					t.Fatalf("%s:%d is allowed", n, port)
				}
			}
		}
		if d := rules.Diff(p, q); len(d) != 0 {
			t.Fatalf("it differs from itself: %+v", d)
		}
	})
}

// FuzzParse: what the gateway is handed is a policy in its canonical form, or
// refused.
func FuzzParse(f *testing.F) {
	p, err := rules.Load("p.yaml", []byte(long))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.JSON())
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := rules.Parse(text)
		if err != nil {
			return
		}
		if !bytes.Equal(p.JSON(), text) {
			t.Fatal("what was taken is not canonical")
		}
		for _, n := range []hostname.Name{"localhost", "metadata.google.internal", "com", ""} {
			if _, v := p.Host(n, 443); v.Allow {
				t.Fatalf("%s is allowed", n)
			}
		}
	})
}
