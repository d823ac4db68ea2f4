package house

import (
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
