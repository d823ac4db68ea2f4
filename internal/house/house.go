// Package house turns the rules of this code base into tests that fail.
//
// A rule that lives only in a document holds until the first busy day. Here
// each one is a function over the parsed source of the whole module: who may
// import whom, where unsafe code and child processes may live, which calls are
// banned and which CVE taught us so, how errors and skips must read. A rule is
// data wherever it can be, with its reason beside it, and the finding quotes
// the reason, so that the person who meets it learns why.
//
// The source is parsed and resolved without compiling anything: names are bound
// by go/types with empty stand-ins for imported packages, which is enough to
// tell os.Create from a local variable named os, and takes milliseconds. The
// price is that a call through an interface or an alias variable is not seen.
//
// Each rule is itself tested against source that breaks it.
package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Rule is one rule of the house.
type Rule struct {
	Name  string
	Check func(*Tree) []Finding
}

// Finding is one place that breaks a rule.
type Finding struct {
	Pos  string // file:line, or a file
	Text string // what is wrong, and why the rule exists
}

func (f Finding) String() string { return f.Pos + ": " + f.Text }

// Rules lists every rule. The numbers are those of the architecture's
// direction rules.
func Rules() []Rule {
	return []Rule{
		{"imports go one way", checkImports},                         // 1, 2, 3, 5, 7
		{"unsafe lives in few files", checkUnsafe},                   // 3
		{"no cgo", checkCgo},                                         // 3
		{"a child never inherits our environment", checkEnvironment}, // 4
		{"no init functions", checkInit},                             // 8
		{"no mutable package variables", checkVars},                  // 8
		{"the core interfaces do not grow", checkCore},               // 9
		{"banned calls", checkBans},                                  // 6, 8, 10
		{"errors read the same way", checkErrorText},
		{"a skip says why", checkSkips},
		{"one package comment", checkPackageComments},
		{"files stay short", checkSizes},
	}
}

// Tree is the parsed source of a module.
type Tree struct {
	Module string
	Fset   *token.FileSet
	Files  []*File
	// Generated files may import what others may, and are else their generator's.
	Generated []*File
	info      types.Info
}

// File is one Go file.
type File struct {
	Path  string // slash-separated, from the module's root
	Dir   string // "." for the root
	Test  bool   // named *_test.go, or anywhere below test
	Lines int
	AST   *ast.File
}

// Load parses every Go file below fsys, whatever its build constraints, except
// in testdata and hidden folders, in bin, and in modules of their own.
func Load(fsys fs.FS, module string) (*Tree, error) {
	t := &Tree{Module: module, Fset: token.NewFileSet()}
	t.info.Uses = map[*ast.Ident]types.Object{}
	t.info.Defs = map[*ast.Ident]types.Object{}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != "." && (name == "testdata" || name == "bin" || name[0] == '.' || name[0] == '_') {
				return fs.SkipDir
			}
			if _, err := fs.Stat(fsys, path.Join(p, "go.mod")); p != "." && err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(t.Fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f := &File{
			Path: p, Dir: path.Dir(p), AST: parsed,
			Test:  strings.HasSuffix(name, "_test.go") || within(path.Dir(p), "test/..."),
			Lines: strings.Count(string(src), "\n"),
		}
		if ast.IsGenerated(parsed) {
			t.Generated = append(t.Generated, f)
		} else {
			t.Files = append(t.Files, f)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot load source: %w", err)
	}
	t.resolve()
	return t, nil
}

// resolve binds names, package by package. Errors are expected: the stand-ins
// have no members.
func (t *Tree) resolve() {
	groups := map[string][]*ast.File{}
	for _, f := range t.Files {
		k := f.Dir + " " + f.AST.Name.Name
		groups[k] = append(groups[k], f.AST)
	}
	conf := types.Config{Importer: standIns{}, Error: func(error) {}}
	for k, files := range groups {
		conf.Check(k, t.Fset, files, &t.info) // the error repeats what Error saw
	}
}

// standIns is an importer that makes empty packages.
type standIns struct{}

func (standIns) Import(p string) (*types.Package, error) {
	pkg := types.NewPackage(p, packageName(p))
	pkg.MarkComplete()
	return pkg, nil
}

var versionSuffix = regexp.MustCompile(`^v[0-9]+$`)

// packageName guesses the name that an import path declares.
func packageName(p string) string {
	base := path.Base(p)
	if versionSuffix.MatchString(base) {
		base = path.Base(path.Dir(p))
	}
	base = strings.TrimSuffix(strings.TrimPrefix(base, "go-"), "-go")
	return strings.ReplaceAll(base, "-", "_")
}

// callee names the package-level function or variable that expr denotes, as in
// ("os", "Create"), or returns two empty strings.
func (t *Tree) callee(expr ast.Expr) (pkg, name string) {
	sel, ok := ast.Unparen(expr).(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	if p, ok := t.info.Uses[id].(*types.PkgName); ok {
		return p.Imported().Path(), sel.Sel.Name
	}
	return "", ""
}

// pos says where node is.
func (t *Tree) pos(node ast.Node) string {
	p := t.Fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// within reports whether dir is one of the folders; "x/..." stands for x and
// everything below it.
func within(dir string, folders ...string) bool {
	for _, f := range folders {
		if base, ok := strings.CutSuffix(f, "/..."); ok && (dir == base || strings.HasPrefix(dir, base+"/")) {
			return true
		}
		if dir == f {
			return true
		}
	}
	return false
}
