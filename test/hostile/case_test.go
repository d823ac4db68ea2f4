package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// A case is one attack.
//
// A file of cases is made of stanzas with an empty line between; a line that
// begins with # is a comment. Each line of a stanza is a key and a value. A
// value goes on in lines that begin with a tab.
//
//	case        its name; those of the list that all tiers share begin with Hnn
//	needs       what must exist before it is due, if that is not there yet
//	tiers       the only tier it is for
//	long        yes: not in CI
//	py, sh      the attack: python with the names of stage.py, or a shell script
//	each, rows  many cases: the row's first field replaces $ in each, which is
//	            python; the others are want/process, want/gvisor and, if it is
//	            there, control. "a / b" is root's and the ordinary user's,
//	            "-" none. They share a process, unless apart is yes
//	want        what the attack prints
//	control     what it prints outside of any box
//	bare        what it prints behind new namespaces alone, with all
//	            capabilities in them, started by an ordinary user
//	nocontrol   why there is neither
//	alone       yes: it has a box of its own, with these keys:
//	flags       of sunaba run
//	cause, code how the run ends, and sunaba's exit code
//	hits        the limits that it touched, in order, as far as they are told of
//	after       no: it does not come to its end, so there is no witness then
//
// Keys that say what comes of it may be followed by /TIER, /USER or /TIER/USER;
// the longest that fits counts. A value between slashes is an expression that
// must fit the whole. The control "reached" is anything that shows that the
// kernel looked at the call: neither what a box hears nor ENOSYS.
type Case struct {
	Name, Group string
	keys        map[string]string
}

// known are the keys, and whether they may be of a tier or a user.
var known = map[string]bool{
	"case": false, "needs": false, "tiers": false, "long": false, "py": false, "sh": false, "each": false, "rows": false, "apart": false,
	"want": true, "control": true, "bare": true, "nocontrol": true, "alone": false, "flags": true, "cause": true, "code": true, "hits": true, "after": true,
}

// ID is the case's number in the shared list, or empty.
func (c Case) ID() string { return regexp.MustCompile(`^H\d\d\b`).FindString(c.Name) }

// bundle names the process that a case shares with others.
func (c Case) bundle() string {
	if rows := c.get("case"); rows != "" && !c.is("apart") {
		return rows
	}
	return c.Name
}

func (c Case) get(key string) string { return c.keys[key] }
func (c Case) is(key string) bool    { return c.keys[key] == "yes" }

// of is the value of a key for a tier and a user; either may be empty.
func (c Case) of(key string, tier box.TierName, u harness.User) (string, bool) {
	for _, k := range []string{key + "/" + string(tier) + "/" + string(u), key + "/" + string(tier), key + "/" + string(u), key} {
		if v, ok := c.keys[k]; ok {
			return v, true
		}
	}
	return "", false
}

func (c Case) want(tier box.TierName, u harness.User) string {
	v, _ := c.of("want", tier, u)
	return v
}

// due reports whether a case is run now in a tier.
func (c Case) due(tier box.TierName) bool {
	return c.get("needs") == "" && (c.get("tiers") == "" || c.get("tiers") == string(tier)) && (long || !c.is("long"))
}

// fits compares an outcome with an expectation.
func fits(want, got string) bool {
	if n := len(want); n > 1 && want[0] == '/' && want[n-1] == '/' {
		return regexp.MustCompile(`^(?s:` + want[1:n-1] + `)$`).MatchString(got)
	}
	return strings.TrimSpace(want) == strings.TrimSpace(got)
}

// groups reads all files of cases. The group is the file's name.
func groups(t testing.TB) map[string][]Case {
	t.Helper()
	out := map[string][]Case{}
	files, err := filepath.Glob("testdata/*.cases")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no cases: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		group := strings.TrimSuffix(filepath.Base(f), ".cases")
		cases, err := parse(group, string(text))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[group] = cases
	}
	return out
}

func parse(group, text string) (cases []Case, err error) {
	keys := map[string]string{}
	last := ""
	finish := func() error {
		if len(keys) == 0 {
			return nil
		}
		some, err := expand(Case{Name: keys["case"], Group: group, keys: keys})
		if err != nil {
			return fmt.Errorf("%s: %w", keys["case"], err)
		}
		cases = append(cases, some...)
		keys, last = map[string]string{}, ""
		return nil
	}
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "" && !strings.HasPrefix(line, "\t"):
			if err := finish(); err != nil {
				return nil, err
			}
		case strings.HasPrefix(line, "\t"):
			if last == "" {
				return nil, fmt.Errorf("line %d goes on, and nothing was begun", i+1)
			}
			keys[last] = strings.TrimPrefix(keys[last]+"\n"+line[1:], "\n")
		default:
			k, v, ok := strings.Cut(line, ":")
			base, qualified, _ := strings.Cut(k, "/")
			may, is := known[base]
			if _, twice := keys[k]; !ok || !is || qualified != "" && !may || twice {
				return nil, fmt.Errorf("line %d: %q is no key, or there twice", i+1, k)
			}
			last, keys[k] = k, strings.TrimSpace(v)
		}
	}
	return cases, finish()
}

// expand checks a case and makes one for each of its rows.
func expand(c Case) ([]Case, error) {
	_, control := c.of("control", "", harness.Root)
	controlled := control || c.get("control/ordinary") != "" || c.get("bare") != "" || c.get("nocontrol") != ""
	switch {
	case c.Name == "":
		return nil, fmt.Errorf("it has no name")
	case c.get("needs") != "":
		return []Case{c}, nil
	case c.get("each") == "" && c.get("py") == "" && c.get("sh") == "":
		return nil, fmt.Errorf("it has no attack")
	case c.get("each") == "" && !controlled:
		return nil, fmt.Errorf("it has neither a control nor a reason for none")
	case c.get("each") == "":
		return []Case{c}, nil
	}
	var out []Case
	for row := range strings.SplitSeq(strings.Trim(c.get("rows"), "\n"), "\n") {
		f := strings.Split(row, "|")
		if len(f) < 3 || len(f) > 4 {
			return nil, fmt.Errorf("row %q has %d fields", row, len(f))
		}
		n := Case{Name: c.Name + " " + strings.TrimSpace(f[0]), Group: c.Group, keys: map[string]string{}}
		for k, v := range c.keys {
			if k != "rows" && k != "each" {
				n.keys[k] = v
			}
		}
		n.keys["py"] = strings.ReplaceAll(c.get("each"), "$", strings.TrimSpace(f[0]))
		for i, key := range []string{"want/process", "want/gvisor", "control"}[:len(f)-1] {
			root, ordinary, two := strings.Cut(f[i+1], " / ")
			n.keys[key] = strings.TrimSpace(root)
			if two {
				n.keys[key+"/"+string(harness.Root)], n.keys[key+"/"+string(harness.Ordinary)] = strings.TrimSpace(root), strings.TrimSpace(ordinary)
			}
		}
		if !controlled && len(f) < 4 {
			return nil, fmt.Errorf("row %q has neither a control nor a reason for none", row)
		}
		out = append(out, n)
	}
	return out, nil
}

// TestEveryCaseOfTheListIsHere: the list that all tiers share has gaps in its
// numbers, and no more gaps than these.
func TestEveryCaseOfTheListIsHere(t *testing.T) {
	have := map[string]bool{}
	names := map[string]bool{}
	for _, cases := range groups(t) {
		for _, c := range cases {
			have[c.ID()] = true
			if names[c.Name] {
				t.Errorf("two cases are called %q", c.Name)
			}
			names[c.Name] = true
		}
	}
	for _, c := range apiCases() {
		have[c.id] = true
	}
	// These are tried where what they are about is tried: docs/hostile.md.
	for id, at := range map[string][2]string{
		"H46": {"field/pool_test.go", "func TestAWarmBoxIsTheCallersAloneAndNoneSurvivesAKill("},
		"H73": {"egress/cases_test.go", `R("flip.example.com"`},
		"H75": {"egress/cases_test.go", `a\0b.wild`},
		"H77": {"egress/cases_test.go", `C("meta.example.com"`},
		"H78": {"egress/cases_test.go", `"both lengths"`},
	} {
		text, err := os.ReadFile(filepath.Join("..", at[0]))
		have[id] = err == nil && strings.Contains(string(text), at[1])
	}
	gaps := []int{7, 12, 16, 22, 25, 29, 33, 36, 41, 43, 48, 52, 55, 59, 62, 66, 71, 76, 81, 86, 91, 96}
	for n := 1; n <= 97; n++ {
		id := fmt.Sprintf("H%02d", n)
		if have[id] == slices.Contains(gaps, n) {
			t.Errorf("%s: it is here: %v, it is in the list: %v", id, have[id], !have[id])
		}
	}
}
