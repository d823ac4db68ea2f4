package tiertest

import (
	"path/filepath"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/posture"
)

// inBox finds a process of a box by its name, from the host's side.
func inBox(t *testing.T, first int, name string) *posture.Process {
	t.Helper()
	all, err := posture.Tree(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if len(p.Args) > 0 && filepath.Base(p.Args[0]) == name {
			return p
		}
	}
	t.Fatalf("process %d has no %s below it", first, name)
	return nil
}
