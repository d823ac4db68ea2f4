package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// A box that may write into a listed folder makes a link there, and the next one
// asks for it: the link's own name is below the folder, and what it leads to is not.
func TestALinkBelowAListedFolderLeadsToNoOtherFolder(t *testing.T) {
	dir := t.TempDir()
	listed, other := filepath.Join(dir, "listed"), filepath.Join(dir, "other")
	for _, d := range []string{filepath.Join(listed, "sub"), other} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"listed/out": other, "listed/in": "sub", "root": "listed"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for root, cases := range map[string]map[string]bool{
		listed:                     {listed + "/in": true, listed + "/sub": true, listed + "/out": false, listed + "/out/../out": false},
		filepath.Join(dir, "root"): {dir + "/root": true, dir + "/root/sub": true, dir + "/root/out": false},
	} {
		b := newBench(t, func(c *Config) { c.MountRoots = []string{root} })
		for source, allowed := range cases {
			sandbox := json.RawMessage(`{"filesystem":{"read_only_mounts":[{"host":"` + source + `","container":"/data"}]}}`)
			_, cerr := b.Create(t.Context(), alice(), box.CreateRequest{Sandbox: sandbox})
			_, xerr := b.Execute(t.Context(), alice(), box.ExecuteRequest{Sandbox: sandbox, Argv: []string{"x"}})
			for call, err := range map[string]error{"create": cerr, "execute": xerr} {
				if denied := box.KindOf(err) == box.Denied || box.KindOf(err) == box.Invalid; denied == allowed {
					t.Errorf("%s with %s below %s: %v", call, source, root, err)
				}
			}
		}
	}
}
