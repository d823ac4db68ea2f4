package house

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestCIRunsTheReadmesTestCommand(t *testing.T) {
	commands := readmeCommands(read(t, "README.md"))
	if len(commands) < 2 {
		t.Fatalf("README.md begins with %d commands, want the one that shows and the one that tests", len(commands))
	}
	var script []string
	for line := range strings.Lines(read(t, ".ci/run")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			script = append(script, line)
		}
	}
	if last := script[len(script)-1]; last != commands[1] {
		t.Errorf(".ci/run ends with %q, README.md tests with %q", last, commands[1])
	}
}

// readmeCommands returns the lines of the first code block.
func readmeCommands(readme string) []string {
	_, rest, _ := strings.Cut(readme, "```sh\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		return nil
	}
	var out []string
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, " #")
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func TestEachDirectDependencyHasItsReasonWritten(t *testing.T) {
	reasons := read(t, "docs/adr/0006-dependencies.md")
	mod := read(t, "go.mod")
	requires := regexp.MustCompile(`(?m)^(?:require )?\s*([a-z0-9.-]+\.[a-z]+/\S+) v\S+$`)
	found := requires.FindAllStringSubmatch(mod, -1)
	if len(found) == 0 {
		t.Fatal("found no direct dependency in go.mod: the expression is stale")
	}
	for _, m := range found {
		if !strings.Contains(reasons, "`"+m[1]+"`") {
			t.Errorf("docs/adr/0006-dependencies.md does not say why go.mod requires %s", m[1])
		}
	}
}

func TestEachDecisionSaysWhatWouldChangeOurMind(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/adr/[0-9]*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no decisions (%v)", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"## Context", "## Decision", "## Alternatives", "## What would change our mind"} {
			if !strings.Contains(string(text), part+"\n") {
				t.Errorf("%s has no part %q", filepath.Base(f), part)
			}
		}
	}
}

func TestLinksInTheDocumentsLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	checked := 0
	for _, doc := range documents() {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", filepath.Base(doc), m[1])
			}
		}
	}
	if checked == 0 {
		t.Error("found no link: the expression is stale")
	}
}

// A room that moves leaves its old name in documents. A line that says
// "planned" may name what is not there yet.
func TestPlacesNamedInTheDocumentsExist(t *testing.T) {
	place := regexp.MustCompile("`((?:cmd|examples|internal|test|tools)/[A-Za-z0-9_./-]+)`")
	checked := 0
	for _, doc := range documents() {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "planned") {
				continue
			}
			for _, m := range place.FindAllStringSubmatch(line, -1) {
				checked++
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s names %s, which is not there", filepath.Base(doc), m[1])
				}
			}
		}
	}
	if checked == 0 {
		t.Error("found no place: the expression is stale")
	}
}

// A document that says which test holds its claim is believed for that.
func TestTestsNamedInTheDocumentsExist(t *testing.T) {
	tests := map[string]bool{}
	begin := regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range begin.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`)
	checked := 0
	for _, doc := range documents() {
		if filepath.Base(doc) == "compat.md" {
			continue // names those of CPython
		}
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllString(string(text), -1) {
			checked++
			if !tests[name] {
				t.Errorf("%s names %s, which is not there", filepath.Base(doc), name)
			}
		}
	}
	if checked < 50 {
		t.Errorf("found %d names of tests only: the expression is stale", checked)
	}
}

// What a merge could not decide and nobody took out is read by everybody.
func TestNoFileHasTheMarksOfAMerge(t *testing.T) {
	looked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (name == ".git" || name == "bin" || name == "tmp") {
			return fs.SkipDir // not in the repository
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		looked++
		if line := markOfAMerge(text); line != 0 {
			t.Errorf("%s:%d is the mark of a merge", path, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 500 {
		t.Errorf("looked at %d files only", looked)
	}
}

func TestMarksOfAMergeAreSeen(t *testing.T) {
	text := "a\n" + strings.Repeat("<", 7) + " HEAD\nb\n"
	if got := markOfAMerge([]byte(text)); got != 2 {
		t.Errorf("the mark was seen in line %d, want 2", got)
	}
	if got := markOfAMerge([]byte("Heading\n=======\n<<<<<<<< x\n")); got != 0 {
		t.Errorf("line %d was taken for a mark", got)
	}
}

// markOfAMerge returns the number of the first line that git wrote around two
// versions of a place, or 0.
func markOfAMerge(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if bytes.HasPrefix(line, bytes.Repeat([]byte("<"), 7)) && len(line) > 8 && line[7] == ' ' ||
			bytes.HasPrefix(line, bytes.Repeat([]byte(">"), 7)) && len(line) > 8 && line[7] == ' ' {
			return n
		}
	}
	return 0
}

func documents() []string {
	var docs []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		more, _ := filepath.Glob(filepath.Join(root, pattern))
		docs = append(docs, more...)
	}
	return docs
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
