package house

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// A rule that cannot fail is no rule: each is shown source that breaks it and
// source that only looks like it.
var cases = []struct {
	rule, file, src string
	want            string // in the finding; empty: no finding
}{
	{"imports go one way", "box/a.go", `package box; import _ "example.org/m/internal/host"`, "box may not import internal/host: it is the vocabulary"},
	{"imports go one way", "internal/policy/a.go", `package policy; import _ "example.org/m/box"`, ""},
	{"imports go one way", "internal/policy/a.go", `package policy; import _ "golang.org/x/sys/unix"`, "policy may not import golang.org/x/sys/unix"},
	{"imports go one way", "internal/host/a.go", `package host; import _ "golang.org/x/sys/unix"`, ""},
	{"imports go one way", "internal/tier/process/a.go", `package process; import _ "example.org/m/internal/tier/gvisor"`, "another tier"},
	{"imports go one way", "internal/tier/process/a.go", `package process; import _ "example.org/m/internal/secret"`, "never sees pool"},
	{"imports go one way", "internal/tier/gvisor/boot/a.go", `package boot; import _ "gvisor.dev/gvisor/runsc/boot"`, ""},
	{"imports go one way", "internal/engine/a.go", `package engine; import _ "gvisor.dev/gvisor/runsc/boot"`, "may not import gvisor.dev"},
	{"imports go one way", "internal/engine/a_test.go", `package engine; import _ "gvisor.dev/gvisor/runsc/boot"`, "may not import gvisor.dev"},
	{"imports go one way", "internal/server/rest/a.go", `package rest; import _ "example.org/m/internal/engine"`, "box.Service"},
	{"imports go one way", "internal/engine/a.go", `package engine; import _ "example.org/m/internal/secret"`, "may not import internal/secret"},
	{"imports go one way", "internal/engine/a.go", `package engine; import _ "os/exec"`, "may not import os/exec"},
	{"imports go one way", "internal/engine/a_test.go", `package engine; import _ "os/exec"`, ""},
	{"imports go one way", "internal/engine/a_test.go", `package engine; import _ "pgregory.net/rapid"`, ""},
	{"imports go one way", "internal/engine/a.go", `package engine; import _ "pgregory.net/rapid"`, "may not import pgregory.net/rapid"},
	{"imports go one way", "test/harness/a.go", `package harness; import _ "example.org/m/internal/engine"`, ""},
	{"imports go one way", "internal/engine/a.go", `package engine; import _ "example.org/m/test/harness"`, "may not import test/harness"},
	{"imports go one way", "cmd/x/a.go", `package main; import _ "example.org/m/test/harness"`, "may not import test/harness"},
	{"imports go one way", "internal/newroom/a.go", `package newroom`, "has no line in the plan"},

	{"unsafe lives in few files", "internal/host/a.go", `package host; import _ "unsafe"`, "*_unsafe.go"},
	{"unsafe lives in few files", "internal/host/a_unsafe.go", `package host; import _ "unsafe"`, ""},
	{"unsafe lives in few files", "internal/files/a_unsafe.go", `package files; import _ "unsafe"`, "*_unsafe.go"},
	{"unsafe lives in few files", "internal/host/a.go", "package host\n\n//go:linkname f runtime.f\nfunc f()", "go:linkname"},
	{"unsafe lives in few files", "internal/tier/gvisor/seccomp_unsafe.go", "package gvisor\n\nimport _ \"unsafe\"\n\n//go:linkname f runtime.f\nfunc f()", ""},

	{"no cgo", "internal/host/a.go", `package host; import "C"`, "no cgo"},
	{"no cgo", "internal/host/a.go", `package host; import "os"`, ""},

	{"a child never inherits our environment", "cmd/x/a.go", `package main; import "os/exec"; func f() { c := exec.Command("true"); c.Run() }`, "inherit"},
	{"a child never inherits our environment", "cmd/x/a.go", `package main; import "os/exec"; func f() { c := exec.Command("true"); c.Env = []string{}; c.Run() }`, ""},
	{"a child never inherits our environment", "cmd/x/a.go", `package main; import "os/exec"; func f() { c := exec.Command("true"); c.Env = nil; c.Run() }`, "inherit"},
	{"a child never inherits our environment", "cmd/x/a_test.go", `package main; import "os/exec"; func f() { exec.Command("true").Run() }`, "inherit"},
	{"a child never inherits our environment", "cmd/x/a.go", `package main; import run "os/exec"; func f() *run.Cmd { return run.CommandContext(nil, "true") }`, "inherit"},
	{"a child never inherits our environment", "cmd/x/a.go", `package main; import "os/exec"; func f() { var c = exec.Command("true"); d := c; d.Env = []string{} }`, "inherit"},
	{"a child never inherits our environment", "cmd/x/a.go", `package main; import "os/exec"; func f() { _ = &exec.Cmd{Path: "/bin/true"} }`, "inherit"},
	{"a child never inherits our environment", "cmd/x/a.go", `package main; import "os/exec"; func f() { _ = &exec.Cmd{Path: "/bin/true", Env: []string{}} }`, ""},
	{"a child never inherits our environment", "cmd/x/a.go", `package main; import "os"; func f() { os.StartProcess("x", nil, &os.ProcAttr{}) }`, "inherit"},

	{"no init functions", "box/a.go", `package box; func init() {}`, "no init functions"},
	{"no init functions", "box/a.go", `package box; type t int; func (t) init() {}`, ""},
	{"no init functions", "box/a_test.go", `package box; func init() {}`, ""},

	{"no mutable package variables", "box/a.go", `package box; var n int`, "variable n is mutable state"},
	{"no mutable package variables", "box/a.go", `package box; import "errors"; var ErrGone = errors.New("cannot find box")`, ""},
	{"no mutable package variables", "box/a.go", `package box; import "encoding/base32"; var e = base32.NewEncoding("x").WithPadding(base32.NoPadding)`, ""},
	{"no mutable package variables", "box/a.go", `package box; import "sync"; var mu = sync.NewCond(nil)`, "variable mu"},
	{"no mutable package variables", "box/a.go", "package box\n\n//house:const a table that nobody writes\nvar table = []int{1}", ""},
	{"no mutable package variables", "box/a.go", "package box\n\nvar table = []int{1} //house:const a table", ""},
	{"no mutable package variables", "box/a.go", "package box\n\n//house:const\nvar table = []int{1}", "variable table"},
	{"no mutable package variables", "box/a.go", "package box\n\n//house:const a table\nvar table = []int{1}\nfunc f() { table[0] = 2 }", "table is a package variable and may not be assigned"},
	{"no mutable package variables", "box/a.go", "package box\n\n//house:const a table\nvar table = []int{1}\nfunc f() { table := []int{0}; table[0] = 2 }", ""},
	{"no mutable package variables", "box/a.go", "package box\n\n//house:const a table\nvar table = map[int]int{}\nfunc f() { delete(table, 1) }", "may not be assigned"},
	{"no mutable package variables", "box/a.go", "package box\n\n//house:const a counter\nvar n int\nfunc f() { n++ }", "may not be assigned"},
	{"no mutable package variables", "box/a_test.go", `package box; import "example.org/m/internal/host"; func f() { host.Root = "x" }`, "host.Root is a package variable"},
	{"no mutable package variables", "box/a.go", "package box\n\n//go:linkname n example.org/other.n\nvar n int\nfunc f() { n = 1 }", ""},
	{"no mutable package variables", "box/a.go", `package box; import "embed"; var _ embed.FS; var _ = 1`, ""},

	{"the core interfaces do not grow", "box/a.go", `package box; type Box interface { ID(); State(); Weak(); Run(); Destroy(); Pause() }`, "optional interface"},
	{"the core interfaces do not grow", "box/a.go", `package box; type Tier interface { Name(); Probe(); Create(); Recover() }`, "box.Tier has"},
	{"the core interfaces do not grow", "box/a.go", `package box; type Box interface { ID(); State(); Weak(); Run(); Destroy() }; type Pauser interface { Pause() }`, ""},

	{"banned calls", "internal/files/a.go", `package files; import "os"; func f() { os.Create("x") }`, "CVE-2024-28185"},
	{"banned calls", "internal/files/a.go", `package files; import "os"; func f() { os.MkdirAll("x", 0) }`, "CVE-2024-45310"},
	{"banned calls", "internal/files/a.go", `package files; import "os"; var chown = os.Chown`, "CVE-2024-28189"},
	{"banned calls", "internal/files/a.go", `package files; import "path/filepath"; func f() { filepath.EvalSymlinks("x") }`, "CVE-2018-15664"},
	{"banned calls", "internal/files/a.go", `package files; import sys "os"; func f() { sys.Chdir("x") }`, "CVE-2024-21626"},
	{"banned calls", "internal/files/a.go", `package files; type t struct{}; func (t) Create(string) {}; func f(os t) { os.Create("x") }`, ""},
	{"banned calls", "internal/files/a.go", `package files; import . "os"; func f() { Create("x") }`, "dot import"},
	{"banned calls", "internal/files/a_test.go", `package files; import "os"; func f() { os.Create("x") }`, ""},
	{"banned calls", "internal/files/a.go", `package files; import "time"; func f() { time.Sleep(1) }`, "a sleep is a guess"},
	{"banned calls", "internal/engine/a.go", `package engine; import "os"; var v = os.Getenv("X")`, "hidden argument"},
	{"banned calls", "cmd/x/a.go", `package main; import "os"; func f() { os.Getenv("X") }`, ""},
	{"banned calls", "internal/engine/a.go", `package engine; import "os"; func f() { os.Exit(1) }`, "clean-up"},
	{"banned calls", "internal/tier/gvisor/gen/a.go", `package main; import "os"; func main() { os.Exit(1) }`, ""},
	{"banned calls", "internal/tier/gvisor/gen/a.go", `package main; import "os"; func main() { os.Getenv("X") }`, "hidden argument"},
	{"banned calls", "internal/engine/a.go", `package engine; import "net"; func f() { net.Dial("tcp", "x") }`, "only egress"},
	{"banned calls", "internal/egress/a.go", `package egress; import "net"; func f() { net.Dial("tcp", "x") }`, ""},
	{"banned calls", "internal/server/rest/a.go", `package rest; import "net/http"; var c = http.DefaultClient`, "only egress"},

	{"errors read the same way", "box/a.go", `package box; import "errors"; var e = errors.New("Cannot open")`, "lower case"},
	{"errors read the same way", "box/a.go", `package box; import "fmt"; func f() error { return fmt.Errorf("cannot open: %w.", nil) }`, "without punctuation"},
	{"errors read the same way", "box/a.go", `package box; import "fmt"; func f() error { return fmt.Errorf("cannot open " + "x\n") }`, "without punctuation"},
	{"errors read the same way", "internal/policy/a.go", `package policy; import "example.org/m/box"; func f() error { return box.Errorf(box.Invalid, "x", "Bad %s", "y") }`, "lower case"},
	{"errors read the same way", "internal/policy/a.go", `package policy; import "example.org/m/box"; func f() error { return box.Errorf(box.Invalid, "Create box", "cannot do %s", "y") }`, ""},

	{"a skip says why", "box/a_test.go", `package box; import "testing"; func TestX(t *testing.T) { t.Skip() }`, "must say why"},
	{"a skip says why", "box/a_test.go", `package box; import "testing"; func TestX(t *testing.T) { t.SkipNow() }`, "must say why"},
	{"a skip says why", "box/a_test.go", `package box; import "testing"; func TestX(t *testing.T) { t.Skip(" ") }`, "must say why"},
	{"a skip says why", "box/a_test.go", `package box; import "testing"; func TestX(t *testing.T) { t.Skip("needs root") }`, ""},

	{"one package comment", "box/a.go", `package box`, "no package comment"},
	{"one package comment", "box/a.go", "// Box is a thing.\npackage box", "must begin"},
	{"one package comment", "box/a.go", "// Package box is a thing.\npackage box", ""},
	{"one package comment", "cmd/x/a.go", "// Package main runs.\npackage main", `must begin "Command "`},
	{"one package comment", "box/a.go", "//go:build linux\n\npackage box", "no package comment"},

	{"files stay short", "box/a.go", "package box\n" + strings.Repeat("\n", 801), "at most 800"},
	{"files stay short", "box/a.go", "// Code generated by x. DO NOT EDIT.\n\npackage box\n" + strings.Repeat("\n", 801), ""},
} //house:const a table

func TestEachRuleFindsWhatBreaksIt(t *testing.T) {
	rules := map[string]Rule{}
	fails := map[string]bool{}
	for _, r := range Rules() {
		rules[r.Name] = r
	}
	for _, c := range cases {
		r, ok := rules[c.rule]
		if !ok {
			t.Fatalf("no rule named %q", c.rule)
		}
		fails[c.rule] = fails[c.rule] || c.want != ""
		t.Run(c.rule+"/"+c.file, func(t *testing.T) {
			found := findings(t, r, fstest.MapFS{c.file: {Data: []byte(c.src)}})
			switch {
			case c.want == "" && found != "":
				t.Errorf("a false alarm for\n%s\n%s", c.src, found)
			case c.want != "" && !strings.Contains(found, c.want):
				t.Errorf("want a finding with %q for\n%s\ngot %q", c.want, c.src, found)
			}
		})
	}
	for name := range rules {
		if !fails[name] {
			t.Errorf("no case shows that rule %q can fail", name)
		}
	}
}

func TestASecondPackageCommentIsFound(t *testing.T) {
	fsys := fstest.MapFS{
		"box/a.go": {Data: []byte("// Package box is a thing.\npackage box")},
		"box/b.go": {Data: []byte("// Package box is another.\npackage box")},
	}
	for _, r := range Rules() {
		if r.Name == "one package comment" && !strings.Contains(findings(t, r, fsys), "second package comment") {
			t.Error("not found")
		}
	}
}

func TestManyLongFilesAreFound(t *testing.T) {
	fsys := fstest.MapFS{}
	for i := range 2 * fewFiles {
		fsys[fmt.Sprintf("box/%02d.go", i)] = &fstest.MapFile{Data: []byte("package box\n" + strings.Repeat("\n", 100+20*i))}
	}
	found := ""
	for _, r := range Rules() {
		if r.Name == "files stay short" {
			found = findings(t, r, fsys)
		}
	}
	for _, want := range []string{"the median file has 301 lines", "one file in ten has 461 lines"} {
		if !strings.Contains(found, want) {
			t.Errorf("want %q, got %q", want, found)
		}
	}
}

func findings(t *testing.T, r Rule, fsys fstest.MapFS) string {
	t.Helper()
	tree, err := Load(fsys, "example.org/m")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range r.Check(tree) {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}
