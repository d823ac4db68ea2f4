package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/engine"
)

// Slices of the table of languages must not be shared between programs.
func TestProgramsDoNotShareTheirArguments(t *testing.T) {
	f := &runFlags{cfg: config.Default(), lang: "python", args: []string{"a"}}
	one, err := codeProgram(f, nil, "-e")
	if err != nil {
		t.Fatal(err)
	}
	f.args = []string{"b"}
	two, err := codeProgram(f, nil, "-e")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(one.argv, []string{"python3", "/workspace/main.py", "a"}) || two.argv[2] != "b" {
		t.Errorf("%q, %q", one.argv, two.argv)
	}
}

func TestTheFormatIsFoundInALineThatCannotBeRead(t *testing.T) {
	for line, want := range map[string]string{
		"--frob -o json x":       "json",
		"-o json --frob":         "json",
		"--frob -o=json":         "json",
		"--frob --o json":        "json",
		"--frob -- echo -o json": "text",
		"--frob -o":              "text",
		"--frob":                 "text",
	} {
		if got := formatOf(strings.Fields(line)); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}

func TestOnlyASecondInterruptIsTaken(t *testing.T) {
	for keys, want := range map[string]int{"abc": 0, "a\x03b": 0, "\x03\x03": 1, "\x03a\x03b\x03": 2} {
		ended := 0
		r := &interruptReader{r: strings.NewReader(keys), second: func() { ended++ }}
		var got bytes.Buffer
		if _, err := got.ReadFrom(r); err != nil || got.String() != keys {
			t.Errorf("%q: passed on %q, %v", keys, got.String(), err)
		}
		if ended != want {
			t.Errorf("%q: ended %d times", keys, ended)
		}
	}
}

func TestAFileAndAFolderOfOneNameAreRefused(t *testing.T) {
	for _, c := range []struct {
		paths string
		ok    bool
	}{
		{"/w/a /w/b", true},
		{"/w/a /w/ab", true},
		{"/w/a/b /w/a/c", true},
		{"/w/a /w/a", false},
		{"/w/a /w/a/b", false},
		{"/w/a/b /w/a", false},
	} {
		var seeds []box.Seed
		for _, p := range strings.Fields(c.paths) {
			seeds = append(seeds, box.Seed{Path: p})
		}
		if err := engine.Distinct(seeds); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.paths, err)
		}
	}
}

func TestNamesAreShownOnOneBoundedLine(t *testing.T) {
	if got := oneLine("a\nb"); got != `a\nb` {
		t.Errorf("%q", got)
	}
	if got := oneLine(strings.Repeat("x", 1000)); len(got) > 220 || !strings.Contains(got, " ... ") {
		t.Errorf("%q", got)
	}
}

// Two limits share each of these causes; the sentence names the one that ended
// the run, also when the other was touched before.
func TestTheLimitThatEndedTheRunIsNamed(t *testing.T) {
	limits := box.LimitsJSON{Processes: 10, OpenFiles: 20, DiskBytes: 30 << 20, Files: 40}
	for _, c := range []struct {
		cause          box.Cause
		ended, touched string
		want           string
	}{
		{box.ProcLimit, "max_processes", "max_open_files", "limit of 10 processes"},
		{box.ProcLimit, "max_open_files", "max_processes", "limit of 20 open files of a process"},
		{box.DiskLimit, "disk", "max_files", "disk limit (30 MiB)"},
		{box.DiskLimit, "max_files", "disk", "limit of 40 files"},
	} {
		rep := &box.Report{Cause: c.cause, Policy: box.Policy{Limits: limits}, LimitsHit: []box.LimitHit{
			{Limit: c.touched}, {Limit: c.ended, Ended: true},
		}}
		if got := explain(&runFlags{}, rep); got != c.want {
			t.Errorf("%s, ended by %s: %q; want %q", c.cause, c.ended, got, c.want)
		}
	}
}

func TestCopiesStayBelowTheWorkingFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, allowed := range map[string]bool{
		"x": true, "a/b": true, "": false, ".": false, "..": false, "../x": false, "a/../../x": false, "a//b": false, "/x": false,
	} {
		seeds, err := extraSeeds(&runFlags{cfg: config.Default(), copies: []string{file + ":" + name}})
		if (err == nil) != allowed {
			t.Errorf("%q: error %v", name, err)
		}
		for _, s := range seeds {
			r, err := s.Open()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
		}
	}
}
