package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	broke = `{"Action":"output","Package":"p","Test":"TestA","Output":"a_test.go:1: broken\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
`
	other = `{"Action":"pass","Package":"p","Test":"TestB"}
`
	ended = `{"Action":"fail","Package":"p"}`
)

func TestReportPassesOnlyWhenTestsRanAndNoneFailed(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		ok             bool
	}{
		{"pass", `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":1.5}`, "ok\tp\t1.5s\n1 passed, 0 failed, 0 skipped", true},
		{"fail", broke + ended, "a_test.go:1: broken\n0 passed, 1 failed, 0 skipped", false},
		{"skip says why", `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: no cgroups\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}`, "ok\tp\t0.0s\n\tskipped TestA: a_test.go:3: no cgroups\n1 passed, 0 failed, 1 skipped", true},
		{"build failure", `{"Action":"build-output","ImportPath":"p","Output":"p.go:1: syntax error\n"}
{"Action":"fail","Package":"p"}`, "p.go:1: syntax error\n0 passed, 1 failed, 0 skipped", false},
		{"time-out leaves a test open", `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}`, "panic: test timed out\n0 passed, 1 failed, 0 skipped", false},
		{"nothing ran", ``, "0 passed, 0 failed, 0 skipped", false},
		{"not json", "go: cannot find module", "go: cannot find module\n0 passed, 0 failed, 0 skipped", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			got := read(strings.NewReader(c.in), &out)
			if text := out.String() + got.String(); got.ok() != c.ok || text != c.want {
				t.Errorf("got %v and\n%s\nwant %v and\n%s", got.ok(), text, c.ok, c.want)
			}
		})
	}
}

func TestOnlyAFewTestsOfPackagesThatMayBeUnsteadyAreLookedAtAgain(t *testing.T) {
	sub := `{"Action":"fail","Package":"p","Test":"TestA/x"}
`
	three := strings.ReplaceAll(broke, "TestA", "TestC") + strings.ReplaceAll(broke, "TestA", "TestD") + broke
	wall := strings.ReplaceAll(broke+ended, `"p"`, `"wall"`)
	panicked := strings.ReplaceAll(broke, "a_test.go:1: broken", "panic: no map")
	for _, c := range []struct {
		name, in string
		fails    int // the try that fails; 0 is none
		tries    int
		want     string
		ok       bool
	}{
		{"passes alone", other + sub + broke + ended, 0, 5, "3 passed, 0 failed, 0 skipped", true},
		{"fails at last", other + broke + ended, 5, 5, "1 passed, 1 failed, 0 skipped", false},
		{"three fail", other + three + ended, 0, 0, "1 passed, 3 failed, 0 skipped", false},
		{"a wall gave way", other + wall, 0, 0, "1 passed, 1 failed, 0 skipped", false},
		{"a wall gave way, too", other + broke + ended + "\n" + wall, 0, 0, "1 passed, 2 failed, 0 skipped", false},
		{"a panic", other + panicked + ended, 0, 0, "1 passed, 1 failed, 0 skipped", false},
		{"a package of no test that failed", other + broke + ended + "\n" + strings.ReplaceAll(ended, `"p"`, `"p2"`), 0, 0, "1 passed, 1 failed, 0 skipped", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			tries := 0
			got := again(read(strings.NewReader(c.in), &out), regexp.MustCompile("^p2?$"), func(which test) error {
				if which != (test{"p", "TestA"}) {
					t.Errorf("%v was run", which)
				}
				if tries++; tries == c.fails {
					return errors.New("broken again")
				}
				return nil
			}, &out)
			if got.ok() != c.ok || got.String() != c.want || tries != c.tries {
				t.Errorf("%d tries: %v, %s", tries, got.ok(), got)
			}
			if strings.Contains(out.String(), "UNSTEADY p TestA: it failed beside other tests") != c.ok {
				t.Errorf("it says %q", out.String())
			}
		})
	}
}

// What the command's end tells counts beside what it said.
func TestACommandThatIsCutShortFails(t *testing.T) {
	for _, c := range []struct {
		name, script, want string
	}{
		{"all well", `cat`, "1 passed, 0 failed, 0 skipped"},
		{"killed", `cat; kill -9 $$`, "1 passed, 1 failed, 0 skipped"},
		{"killed after a failure", `cat; echo '{"Action":"fail","Package":"p","Test":"TestA"}'; echo '{"Action":"fail","Package":"p"}'; kill -9 $$`, "1 passed, 1 failed, 0 skipped"},
		{"fails of itself", `cat; echo flag provided but not defined >&2; exit 1`, "1 passed, 1 failed, 0 skipped"},
		{"usage", `exit 2`, "0 passed, 1 failed, 0 skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			got := run([]string{"sh", "-c", "exec </dev/null; cat() { echo '" + strings.TrimSpace(other) + "'; }; " + c.script}, os.Environ(), &out)
			if got.String() != c.want || got.ok() != (c.name == "all well") {
				t.Errorf("%v: %s; %s", got.ok(), got, out.String())
			}
			tries := 0
			if again(got, regexp.MustCompile("."), func(test) error { tries++; return nil }, &out); tries != 0 {
				t.Errorf("%d tests were run again", tries)
			}
		})
	}
	if run([]string{"/does/not/exist"}, nil, io.Discard).ok() {
		t.Error("no command, and all is well")
	}
}

// With the real command, and tests that fail each time, now and then, and never.
func TestATestThatIsRunAgainHasToRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"m_test.go": `package m

import "testing"

func TestPasses(t *testing.T)    {}
func TestPassesToo(t *testing.T) { t.Error("another") }
func TestFails(t *testing.T)     { t.Error("broken") }
func TestSkips(t *testing.T)     { t.Skip("not here") }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for name, want := range map[string]string{"TestPasses": "", "TestFails": "broken", "TestSkips": "did not run", "TestIsNotThere": "did not run"} {
		if err := goTest(test{"m", name}, os.Environ()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
