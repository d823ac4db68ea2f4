package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

func TestTheHouseKeepsItsRules(t *testing.T) {
	tree, err := Load(os.DirFS(root), module(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Files) < 10 {
		t.Fatalf("found only %d Go files: this test looks in the wrong place", len(tree.Files))
	}
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			for _, f := range r.Check(tree) {
				t.Error(f)
			}
		})
	}
}

func TestAllowancesAreForFilesThatExist(t *testing.T) {
	for p, names := range allowed() {
		if _, err := os.Stat(filepath.Join(root, p)); err != nil {
			t.Errorf("bans.go allows %s, which is gone", p)
		}
		for name, why := range names {
			if why == "" {
				t.Errorf("bans.go allows %s in %s without a reason", name, p)
			}
		}
	}
}

// module reads the module path from go.mod.
func module(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	name, ok := strings.CutPrefix(line, "module ")
	if !ok {
		t.Fatalf("go.mod begins %q", line)
	}
	return name
}
