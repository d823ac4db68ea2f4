package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// What the README runs, and its files, by content. The hello programs tell the
// kernel and the number of processors, in which the tiers differ by design.
func TestExamplesGiveTheSameOnEitherTier(t *testing.T) {
	differs := regexp.MustCompile(`kernel: +\S+|cpus: +\d+`)
	root := harness.ModuleRoot()
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		dir := harness.Dir(t, u)
		source := filepath.Join(dir, "x.c")
		if err := os.WriteFile(source, []byte("#include <stdio.h>\nint main(void) { puts(\"compiled\"); }\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for name, args := range map[string][]string{
			"sales":      {"--input", root + "/examples/sales/data.json", root + "/examples/sales/analysis.py"},
			"generate":   {root + "/examples/sales/generate.py"},
			"python":     {root + "/examples/hello.py"},
			"javascript": {root + "/examples/hello.js"},
			"bash":       {root + "/examples/hello.sh"},
			"argument":   {"-e", "print(1)", "--lang", "python"},
			"gcc":        {"--copy", source, "--", "sh", "-c", "gcc -O2 x.c -o x && ./x"},
			"mount":      {"--mount", root + "/examples:/input", "--", "sh", "-c", "ls /input/sales | tee list"},
		} {
			var reports [2]box.Report
			for i, by := range []harness.User{u, u.Trusting()} {
				reports[i] = harness.Report(t, by, args...)
			}
			g, p := reports[0], reports[1]
			if g.Tier != box.TierGvisor || p.Tier != box.TierProcess || g.ExitCode == nil || *g.ExitCode != 0 || p.Stdout == nil || p.Stderr == nil || len(g.Artifacts) == 0 && *g.Stdout == "" {
				t.Fatalf("%s: tiers %s and %s\n%s\n%s", name, g.Tier, p.Tier, whole(g), whole(p))
			}
			for what, v := range map[string][2]string{
				"cause":    {string(g.Cause), string(p.Cause)},
				"stdout":   {differs.ReplaceAllString(*g.Stdout, "-"), differs.ReplaceAllString(*p.Stdout, "-")},
				"stderr":   {*g.Stderr, *p.Stderr},
				"output":   {string(g.Output), string(p.Output)},
				"files":    {files(g), files(p)},
				"trouble":  {g.OutputError + g.ArtifactsError, p.OutputError + p.ArtifactsError},
				"its user": {string(g.Policy.User), string(p.Policy.User)},
			} {
				if v[0] != v[1] {
					t.Errorf("%s: %s on gvisor is\n%s\non process\n%s", name, what, v[0], v[1])
				}
			}
		}
	})
}

// whole is a report as a person can read it.
func whole(r box.Report) string {
	b, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// files names what a program left, each by its content, in the order of names.
func files(r box.Report) string {
	var lines []string
	for _, a := range r.Artifacts {
		lines = append(lines, a.Path+" "+a.SHA256+" "+a.Error)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// The policy of the examples says what its table promises, and the client that has
// nothing but Python's own library sees a denial and lets it through.
func TestTheNetworkExamplesHold(t *testing.T) {
	dir := filepath.Join(harness.ModuleRoot(), "examples/network")
	u := harness.Users()[0]
	for _, args := range [][]string{
		{"policy", "check", filepath.Join(dir, "policy.yaml")},
		{"policy", "test", "--policy", filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "promises.txt")},
	} {
		if r := harness.Run(t, u, args...); r.Code != 0 || strings.Contains(string(r.Stdout), "warning") {
			t.Errorf("%v: %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
	d := harness.StartServer(t, u)
	cmd := exec.Command("/usr/bin/python3", filepath.Join(dir, "client.py"))
	cmd.Env = []string{"SUNABA_SERVER=" + d.URL, "SUNABA_API_KEY=" + d.Key}
	out, err := cmd.CombinedOutput()
	const want = `pypi.org: True
files.pythonhosted.org: False
denied files.pythonhosted.org because no entry of the policy is for files.pythonhosted.org; to allow it: files.pythonhosted.org:443
now allowed: pypi.org files.pythonhosted.org:443
files.pythonhosted.org: True
`
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}
