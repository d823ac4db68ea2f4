package rules_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// block returns the fenced block of a document that begins with a line.
func block(t *testing.T, doc, first string) string {
	t.Helper()
	_, rest, ok := strings.Cut(doc, "\n"+first)
	text, _, end := strings.Cut(rest, "\n```")
	if !ok || !end {
		t.Fatalf("there is no block that begins with %q", first)
	}
	return first + text + "\n"
}

// TestTheDocumentedPolicyIsWhatThePageSays loads the page's policy and holds it
// against the page's own table.
func TestTheDocumentedPolicyIsWhatThePageSays(t *testing.T) {
	text, err := os.ReadFile("../../../docs/egress-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	p := policy(t, block(t, string(text), "version: 1"))
	if w, err := rules.Lint("p", []byte(block(t, string(text), "version: 1"))); err != nil || len(w) > 0 {
		t.Errorf("%v, %v", w, err)
	}
	table, err := rules.ParseExpectations("table", block(t, string(text), "# what we promise"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range table {
		if a := p.Explain(e.Question); a.Allow != e.Allow {
			t.Errorf("%s: %+v", e.Text, a)
		}
	}
	if d := rules.DefaultLimits(); d.Conns != 256 || d.Names != 1024 || d.TxBytes != 0 || d.RxBytes != 0 || d.URLBytes != 8<<10 || d.HeaderBytes != 32<<10 || d.Rate != (rules.Rate{}) {
		t.Errorf("the page has other limits than %+v", d)
	}
}
