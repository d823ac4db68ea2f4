package hostile

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// tiers are those that exist.
func tiers() []box.TierName { return []box.TierName{box.TierGvisor, box.TierProcess} }

// flags choose a tier, sizes that an ordinary user's process box can have, whose
// disk is in its memory, and a deadline that none comes to on a busy host either.
func flags(tier box.TierName) []string {
	return []string{"--tier", string(tier), "--allow-weaker-tier", "--memory", "256m", "--disk", "64m", "--timeout", "600"}
}

// place is where a case is run: in a tier, as a user.
type place struct {
	tier box.TierName
	user harness.User
}

func (p place) String() string { return string(p.tier) + ", " + string(p.user) }

func places() (all []place) {
	for _, tier := range tiers() {
		for _, u := range harness.Users() {
			all = append(all, place{tier, u})
		}
	}
	return all
}

// patience bounds every command: it ends a test that hangs and decides nothing
// else.
const patience = 20 * time.Minute

// python is the interpreter that a box of image host has, too.
const python = "/usr/bin/python3"

// careless prepares a command the way testdata/launch.py starts one.
func careless(t *testing.T, u harness.User, c canaries, argv ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, python, slices.Concat([]string{file("launch.py"), c.dir, c.Secret}, argv)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "SUNABA_STATE=" + harness.State(t, u)}
	cmd.Dir = c.dir
	cmd.WaitDelay = time.Second // for pipes that a killed command's children hold
	if os.Geteuid() == 0 && u == harness.Ordinary {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: harness.OrdinaryID, Gid: harness.OrdinaryID}}
	}
	return cmd
}

// file is a file of testdata that every user can read, by its absolute path.
func file(name string) string {
	p, err := filepath.Abs("testdata/" + name)
	if err != nil {
		panic(err)
	}
	return p
}

// TestCounts says how many cases are run where, and what the others wait for.
func TestCounts(t *testing.T) {
	all := groups(t)
	for _, p := range places() {
		ran, later, waiting := len(apiCases()), 0, map[string][]string{}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			for _, c := range all[name] {
				switch {
				case c.due(p.tier):
					ran++
				case c.get("needs") != "":
					waiting[c.get("needs")] = append(waiting[c.get("needs")], c.ID())
				case c.get("tiers") == "" || c.get("tiers") == string(p.tier):
					later++
				}
			}
		}
		t.Logf("%s: %d cases run, %d more with make hostile", p, ran, later)
		for _, need := range slices.Sorted(maps.Keys(waiting)) {
			t.Logf("%s: waiting for %s: %s", p, need, strings.Join(waiting[need], " "))
		}
		if ran < 400 {
			t.Errorf("%s: only %d cases are run", p, ran)
		}
	}
}
