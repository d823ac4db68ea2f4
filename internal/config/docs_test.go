package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
)

var update = flag.Bool("update", false, "write the table of keys in docs/configuration.md")

const docFile = "../../docs/configuration.md"

// table writes the keys as the documentation shows them.
func table() string {
	var b strings.Builder
	b.WriteString("| key | type, unit | default | range | flag | |\n|---|---|---|---|---|---|\n")
	for _, k := range Keys() {
		def, flag := "", ""
		if k.Default != "" {
			def = "`" + k.Default + "`"
		}
		if k.Flag != "" {
			flag = "`--" + k.Flag + "`"
			if k.List() {
				flag += " ..."
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, k.Type, def, k.Allowed, flag, k.Help)
	}
	return b.String()
}

func TestDocumentationHasEveryKey(t *testing.T) {
	data, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	start := strings.Index(doc, "<!-- keys:")
	end := strings.Index(doc, "<!-- end of keys -->")
	if start < 0 || end < 0 {
		t.Fatal("the marks around the table are gone")
	}
	start += strings.Index(doc[start:], "\n") + 1
	if doc[start:end] == table() {
		return
	}
	if !*update {
		t.Fatal("the table of keys is not what Keys says; run go test ./internal/config -run Documentation -update")
	}
	if err := os.WriteFile(docFile, []byte(doc[:start]+table()+doc[end:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The example is run, the words on units and errors are tried, and the table
// of trust is held against the decision.
func TestDocumentationIsTrue(t *testing.T) {
	data, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	_, rest, _ := strings.Cut(doc, "```yaml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example")
	}
	load(t, example)

	_, err = Load("sunaba.yaml", strings.NewReader("sandbox:\n  resource_limits:\n    memroy: 1\n    disk: 512q\n"))
	var all Errors
	if !errors.As(err, &all) || len(all) != 2 {
		t.Fatalf("got %v", err)
	}
	for _, e := range all {
		// The documentation may cut a message short, with dots.
		if start, _, _ := strings.Cut(e.Error(), "; allowed"); !strings.Contains(doc, start) {
			t.Errorf("not in the documentation: %s", start)
		}
	}
	for _, trust := range box.Trusts() {
		found := false
		for line := range strings.Lines(doc) {
			found = found || strings.HasPrefix(line, "| `"+string(trust)+"` |") && strings.HasSuffix(line, "| `"+string(policy.TrustFloor(trust))+"` |\n")
		}
		if !found {
			t.Errorf("the documentation has not the floor of %s", trust)
		}
	}
}

// Defaults are documented as text: reading them must give the defaults.
func TestDefaultsOfKeysAreTheDefaults(t *testing.T) {
	for _, k := range Keys() {
		if k.List() || k.Default == "" {
			continue
		}
		c := Config{}
		if err := c.Set(k.Name, strings.Trim(k.Default, `"`)); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
		d := Default()
		if err := d.Set(k.Name, strings.Trim(k.Default, `"`)); err != nil || fmt.Sprint(d) != fmt.Sprint(Default()) {
			t.Errorf("%s: %s is not the default: %v", k.Name, k.Default, err)
		}
	}
}
