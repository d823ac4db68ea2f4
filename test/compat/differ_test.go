package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// tierRow is a row of the table "Differences between the tiers" in
// docs/compat.md: what a program of testdata/differ prints on each tier.
type tierRow struct {
	text            string
	name            string // program: what it asked; a pattern as in path.Match
	gvisor, process string // patterns for the answers
	where           []string
	used            map[harness.User]bool
}

// tierRows reads the document, which is the list: what has no row is a failure,
// and so is a row that nothing needs.
func tierRows(t *testing.T) []*tierRow {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(harness.ModuleRoot(), "docs/compat.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "\n## Differences between the tiers\n")
	if !ok {
		t.Fatal("docs/compat.md has no part about the differences between the tiers")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var rows []*tierRow
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) != 7 {
			t.Fatalf("docs/compat.md: %d cells, want program, gvisor, process, where, why: %s", len(cells)-2, line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.Trim(strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|")), "`"))
		}
		r := &tierRow{text: line, name: cells[1], gvisor: cells[2], process: cells[3], where: words(cells[4]), used: map[harness.User]bool{}}
		for _, p := range []string{r.name, r.gvisor, r.process} {
			if _, err := path.Match(p, ""); err != nil {
				t.Errorf("docs/compat.md: bad pattern %q: %s", p, line)
			}
		}
		if len(cells[5]) < 8 {
			t.Errorf("docs/compat.md: no reason is given: %s", line)
		}
		rows = append(rows, r)
	}
	return rows
}

// fits is path.Match, but a slash is a letter like any other.
func fits(pattern, text string) bool {
	hide := strings.NewReplacer("/", "\x01")
	ok, _ := path.Match(hide.Replace(pattern), hide.Replace(text))
	return ok
}

// programs unpacks the programs of testdata/differ into a folder that u can
// read, those for a terminal apart from all others.
func programs(t *testing.T, u harness.User) (all, terminal string) {
	t.Helper()
	dir := harness.Dir(t, u)
	archives, err := filepath.Glob("testdata/differ/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no programs: %v", err)
	}
	n := 0
	put := func(sub, name string, data []byte) {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range archives {
		b, err := os.ReadFile(a)
		if err != nil {
			t.Fatal(err)
		}
		sub := "all"
		if filepath.Base(a) == "terminal.txtar" {
			sub = "terminal"
		}
		for _, f := range txtar.Parse(b).Files {
			put(sub, f.Name, f.Data)
			n++
		}
	}
	for _, helper := range []string{"run.py", "probe.py"} {
		b, err := os.ReadFile("testdata/differ/" + helper)
		if err != nil {
			t.Fatal(err)
		}
		put("all", helper, b)
	}
	if n < 60 {
		t.Fatalf("only %d programs", n)
	}
	return filepath.Join(dir, "all"), filepath.Join(dir, "terminal")
}

// answers runs the programs in a place and returns what each answered to each
// question, by "program: question".
func answers(t *testing.T, p place, all, terminal string) map[string]string {
	t.Helper()
	// The disk fits into the memory limit, so both are the same for everybody.
	args := p.run("--memory", "512m", "--disk", "200m", "--max-files", "5000", "--max-processes", "48", "--cpu", "2", "--mount", all+":/programs")
	r := harness.Run(t, p.user, append(args, "--", "python3", "/programs/run.py", "/programs")...)
	if r.Code != 0 {
		t.Fatalf("%s: exit code %d\n%s", p, r.Code, r.Stderr)
	}
	var results map[string][2]any
	if err := json.Unmarshal([]byte(r.Stdout), &results); err != nil {
		t.Fatalf("%s: %v\n%.1000s", p, err, r.Stdout)
	}
	found := map[string]string{}
	add := func(program string, code any, out string) {
		found[program+": exit code"] = fmt.Sprint(code)
		for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
			question, answer, ok := strings.Cut(strings.TrimSpace(line), "=")
			if !ok {
				question, answer = fmt.Sprintf("line %d", i+1), line
			}
			found[program+": "+question] = strings.TrimSpace(answer)
		}
	}
	for name, res := range results {
		add(name, res[0], res[1].(string))
	}
	scripts, err := os.ReadDir(terminal)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		how := map[string]string{".sh": "bash", ".py": "python3"}[filepath.Ext(s.Name())]
		args := p.run("--memory", "512m", "--disk", "200m", "--mount", terminal+":/programs", "--env", "TERM=xterm", "-t")
		r := harness.Run(t, p.user, append(args, "--", how, "/programs/"+s.Name())...)
		add(s.Name(), r.Code, r.Stdout)
	}
	return found
}

// What a program sees must not depend on the tier without a reason, since which
// tier it runs on is decided by trust alone.
func TestTiersDifferOnlyWhereTheDocumentSaysSo(t *testing.T) {
	harness.NothingLeft(t)
	rows := tierRows(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		all, terminal := programs(t, u)
		on := map[string]map[string]string{}
		for _, tier := range []string{gvisor, process} {
			on[tier] = answers(t, place{tier, u, "host"}, all, terminal)
		}
		names := map[string]bool{}
		for _, tier := range []string{gvisor, process} {
			for name := range on[tier] {
				names[name] = true
			}
		}
		if len(names) < 900 {
			t.Errorf("only %d answers came", len(names))
		}
		differ := 0
		for _, name := range slices.Sorted(maps.Keys(names)) {
			g, inG := on[gvisor][name]
			p, inP := on[process][name]
			if !inG {
				g = "no answer"
			}
			if !inP {
				p = "no answer"
			}
			if g == p {
				continue
			}
			differ++
			if !listed(rows, u, name, g, p) {
				t.Errorf("differs without a row in docs/compat.md:\n| `%s` | `%s` | `%s` |  |  |", name, escape(g), escape(p))
			}
		}
		t.Logf("compat: %s: %d answers of %d differ between the tiers", u, differ, len(names))
	})
	for _, r := range rows {
		for _, u := range harness.Users() {
			if !r.used[u] && (place{user: u}).has(r.where) {
				t.Errorf("listed in docs/compat.md, but nothing differs so for user %s: %s", u, r.text)
			}
		}
	}
}

func listed(rows []*tierRow, u harness.User, name, g, p string) bool {
	found := false
	for _, r := range rows {
		if (place{user: u}).has(r.where) && fits(r.name, name) && fits(r.gvisor, g) && fits(r.process, p) {
			r.used[u] = true
			found = true
		}
	}
	return found
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
