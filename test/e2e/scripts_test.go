package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// TestScripts runs testdata/*.txtar. A single one: go test -run 'Scripts/root/json'.
func TestScripts(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		bin := wrappers(t, u)
		state := harness.State(t, u)
		root := harness.Dir(t, u)
		testscript.Run(t, testscript.Params{
			Dir:                "testdata",
			WorkdirRoot:        root,
			RequireUniqueNames: true,
			Cmds:               commands(),
			Condition: func(cond string) (bool, error) {
				switch cond {
				case "root":
					return u == harness.Root, nil
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
	if os.Geteuid() == 0 && u == harness.Ordinary {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("cannot become an ordinary user for scripts: setpriv (util-linux) is not here")
		}
		as = fmt.Sprintf(`exec %s --reuid=%d --regid=%[2]d --clear-groups -- "$@"`, setpriv, harness.OrdinaryID)
	}
	for name, line := range map[string]string{
		"as":     as,
		"sunaba": fmt.Sprintf(`exec %s/as %s "$@"`, dir, harness.Binary(t)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+line+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// giveTree makes u the owner of a script's files.
func giveTree(u harness.User, dir string) error {
	if os.Geteuid() != 0 || u == harness.Root {
		return nil
	}
	return filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, harness.OrdinaryID, harness.OrdinaryID)
	})
}
