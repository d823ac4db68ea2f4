package house

import (
	"fmt"
	"go/ast"
	"slices"
)

// ban forbids functions or variables of a package.
type ban struct {
	pkg   string
	names []string
	why   string
	rooms []string // where it is allowed; "x/..." includes the folders below
	mains bool     // allowed in every package main
	tests bool     // also banned in test files
}

// bans lists what may not be used. The CVE beside a ban is the bug that the
// call made possible somewhere else.
func bans() []ban {
	network := []string{"internal/egress/...", "internal/gateway/...", "internal/image", "internal/agent", "sdk/...", "tools/benchnet"}
	return []ban{
		{pkg: "os", names: []string{"Create", "WriteFile"},
			why: "it follows a link that a box has put there (CVE-2024-28185: files of the host overwritten); open by descriptor with O_NOFOLLOW or O_EXCL, see internal/files"},
		{pkg: "os", names: []string{"MkdirAll"},
			why: "it walks through links that a box can swap (CVE-2024-45310: folders made on the host); make each component by descriptor"},
		{pkg: "os", names: []string{"Chown", "Chmod", "Truncate"},
			why: "it changes whatever a box's link points to (CVE-2024-28189: root's files given away); act on an open descriptor"},
		{pkg: "path/filepath", names: []string{"EvalSymlinks"},
			why: "what it resolved can change before the use (CVE-2018-15664: docker cp escaped its root); resolve and open in one step with openat2"},
		{pkg: "os", names: []string{"Chdir"},
			why: "the working folder is a descriptor that every child inherits (CVE-2024-21626: a folder of the host leaked into the box); set the child's folder instead"},
		{pkg: "net", names: []string{"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer", "LookupHost", "LookupIP", "LookupAddr"}, rooms: network,
			why: "only egress may reach out: it dials the address that it has checked"},
		{pkg: "net/http", names: []string{"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm"}, rooms: network,
			why: "only egress may reach out: it dials the address that it has checked"},
		{pkg: "os", names: []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv", "Clearenv"}, rooms: []string{"cmd/..."},
			why: "configuration is a value that cmd reads once; an environment variable is a hidden argument"},
		{pkg: "os", names: []string{"Exit"}, mains: true,
			why: "it skips every deferred clean-up; return an error"},
		{pkg: "log", names: []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
			why: "it skips every deferred clean-up; return an error"},
		{pkg: "time", names: []string{"Sleep"},
			why: "a sleep is a guess at how long something takes; wait for the thing itself, with a context"},
		{pkg: "os", names: []string{"StartProcess"}, tests: true,
			why: "children are started by os/exec with an explicit environment"},
		{pkg: "syscall", names: []string{"ForkExec", "StartProcess"}, tests: true, rooms: []string{"internal/host/..."},
			why: "children are started by os/exec with an explicit environment"},
	}
}

// allowed lists the files that may use a banned name or assign a variable of
// another package, and why that is safe there.
func allowed() map[string]map[string]string {
	return map[string]map[string]string{
		"internal/tier/gvisor/dispatch.go": {
			"os.Setenv": "the C library of a cgo build takes its tunables from nowhere else",
			"os.Exit":   "it is the main function of a re-executed part of a box: nobody is left to return to",
			"os.Args":   "gVisor's command line reads its flags there",
		},
		"internal/procguard/procguard.go": {
			"os.Exit":                "it runs before main, in the place of a panic; nothing was begun that could be cleaned up",
			"runtime.MemProfileRate": "it is the switch of a table that every process of a box would keep, and counts only if it is the first thing that a program does",
		},
		"tools/testreport/main.go": {
			"os.Environ": "it is a main function, and go reads its settings there",
		},
		"internal/tier/gvisor/gofer.go": {
			"os.Exit": "gVisor's hook cannot return an error, and a gofer with capabilities must not serve",
		},
		"internal/tier/gvisor/steadystub.go": {
			"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg.SighandlerBlob": "gVisor copies it from there, later, in a process that is the kernel of one guest and nothing else",
		},
		"internal/tier/tiertest/slowstub_test.go": {
			"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg.SighandlerBlob": "as steadystub.go, in a guest's kernel whose stub is to be slow",
		},
		"internal/tier/gvisor/scrub_unsafe.go": {
			"os.Clearenv": "it forgets the environment and reads nothing",
		},
		"internal/tier/gvisor/runner_setup.go": {
			"os.WriteFile": "the bundle's folder is the runner's own, and no box exists yet",
		},
		"internal/image/store.go": {
			"os.Chmod": "the image store is writable by its owner only, and no box sees its folder",
		},
	}
}

func checkBans(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.Files {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, name := t.callee(sel)
			for _, b := range bans() {
				if pkg != b.pkg || f.Test && !b.tests || b.mains && f.AST.Name.Name == "main" || within(f.Dir, b.rooms...) || !slices.Contains(b.names, name) {
					continue
				}
				if allowed()[f.Path][pkg+"."+name] == "" {
					out = append(out, Finding{t.pos(sel), fmt.Sprintf("%s.%s is banned: %s", pkg, name, b.why)})
				}
			}
			return true
		})
		for _, spec := range f.AST.Imports {
			if spec.Name != nil && spec.Name.Name == "." {
				out = append(out, Finding{t.pos(spec), "a dot import hides where a name comes from, from readers and from these rules"})
			}
		}
	}
	return out
}
