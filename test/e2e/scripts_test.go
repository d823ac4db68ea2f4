package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// onBoth are the scripts that run behind either tier; the others are about what
// comes before a box, or choose one themselves.
var onBoth = []string{"box", "exitcodes", "files", "json", "languages", "mounts", "out"} //house:const names

// TestScripts runs testdata/*.txtar. A single one: go test -run 'Scripts/root/json',
// or 'Scripts/root/process/json'.
func TestScripts(t *testing.T) {
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		var files []string
		for _, name := range onBoth {
			files = append(files, "testdata/"+name+".txtar")
		}
		if !u.IsTrusting() {
			all, err := filepath.Glob("testdata/*.txtar")
			if err != nil || len(all) < len(files) {
				t.Fatalf("scripts: %v, %v", all, err)
			}
			files = all
		}
		bin := wrappers(t, u)
		state := harness.State(t, u)
		root := harness.Dir(t, u)
		testscript.Run(t, testscript.Params{
			Files:              files,
			WorkdirRoot:        root,
			RequireUniqueNames: true,
			Cmds:               commands(),
			Condition: func(cond string) (bool, error) {
				switch cond {
				case "root":
					return u == harness.Root || u == harness.Root.Trusting(), nil
				case "gvisor":
					return !u.IsTrusting(), nil
				case "process":
					return u.IsTrusting(), nil
				case "counted": // by a kernel, which tells of every process that it refused
					return !u.IsTrusting() || u == harness.Root.Trusting(), nil
				}
				return false, fmt.Errorf("unknown condition %q", cond)
			},
			Setup: func(env *testscript.Env) error {
				env.Setenv("PATH", bin+":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
				env.Setenv("SUNABA_STATE", state)
				env.Setenv("HOME", env.WorkDir+"/home")
				if err := os.Mkdir(env.WorkDir+"/home", 0o755); err != nil {
					return err
				}
				return giveTree(u, env.WorkDir)
			},
		})
	})
}

// wrappers returns a folder with two commands: "as CMD..." runs CMD as u, and
// "sunaba" is the binary as u.
func wrappers(t *testing.T, u harness.User) string {
	t.Helper()
	dir := harness.Dir(t, u)
	as := `exec "$@"`
	if os.Geteuid() == 0 && ordinary(u) {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("cannot become an ordinary user for scripts: setpriv (util-linux) is not here")
		}
		as = fmt.Sprintf(`exec %s --reuid=%d --regid=%[2]d --clear-groups -- "$@"`, setpriv, harness.OrdinaryID)
	}
	for name, line := range map[string]string{
		"as":     as,
		"sunaba": fmt.Sprintf(`[ "$1" != run ] || { shift; set -- run %s "$@"; }`+"\n"+`exec %s/as %s "$@"`, strings.Join(u.Flags(), " "), dir, harness.Binary(t)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+line+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func ordinary(u harness.User) bool { return u == harness.Ordinary || u == harness.Ordinary.Trusting() }

// giveTree makes u the owner of a script's files.
func giveTree(u harness.User, dir string) error {
	if os.Geteuid() != 0 || !ordinary(u) {
		return nil
	}
	return filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, harness.OrdinaryID, harness.OrdinaryID)
	})
}
