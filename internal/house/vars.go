package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// markConst, in the comment of a package variable and with a reason after it,
// says that it never changes, though Go cannot say so.
const markConst = "//house:const "

func checkInit(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.Files {
		for _, decl := range f.AST.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && !f.Test && fn.Recv == nil && fn.Name.Name == "init" {
				out = append(out, Finding{t.pos(fn), "no init functions: they run in every process that links this, the boot path of a box included; call it from where it is needed"})
			}
		}
	}
	return out
}

// checkVars wants package variables that never change: error sentinels,
// compiled expressions, embedded files, and what is marked house:const. Nothing
// may assign to a package variable, its own or another's, tests included; one
// that go:linkname declares is another's by design, and is judged by the rule
// for unsafe code.
func checkVars(t *Tree) []Finding {
	var out []Finding
	extern := map[types.Object]bool{}
	for _, f := range t.Files {
		for _, decl := range f.AST.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, s := range gen.Specs {
				spec := s.(*ast.ValueSpec)
				text := comments(gen.Doc, spec.Doc, spec.Comment)
				for i, name := range spec.Names {
					if strings.Contains(text, "//go:linkname ") {
						extern[t.info.Defs[name]] = true
					} else if !f.Test && name.Name != "_" && !marked(text) && !strings.Contains(text, "//go:embed ") && !t.constant(spec, i) {
						out = append(out, Finding{t.pos(name), fmt.Sprintf("package variable %s is mutable state that every user shares; make it a function or a field, or say why it never changes with %swhy", name.Name, markConst)})
					}
				}
			}
		}
	}
	for _, f := range t.Files {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			for _, target := range targets(n) {
				if name := t.packageVar(target, extern); name != "" && allowed()[f.Path][name] == "" {
					out = append(out, Finding{t.pos(n), fmt.Sprintf("%s is a package variable and may not be assigned: it is shared with whoever runs beside us", name)})
				}
			}
			return true
		})
	}
	return out
}

// constant reports whether the i-th variable of spec is made by a call whose
// result nobody can change.
func (t *Tree) constant(spec *ast.ValueSpec, i int) bool {
	if i >= len(spec.Values) {
		return false
	}
	e := ast.Unparen(spec.Values[i])
	for {
		call, ok := e.(*ast.CallExpr)
		if !ok {
			return false
		}
		switch pkg, name := t.callee(call.Fun); pkg + "." + name {
		case "errors.New", "fmt.Errorf", "regexp.MustCompile", "encoding/base32.NewEncoding", "encoding/base64.NewEncoding":
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr) // a method of such a value: base32.NewEncoding(x).WithPadding(y)
		if !ok {
			return false
		}
		e = ast.Unparen(sel.X)
	}
}

// targets lists the expressions that n writes to.
func targets(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (id.Name == "delete" || id.Name == "clear" || id.Name == "copy") {
			return n.Args[:1]
		}
	}
	return nil
}

// packageVar names the package variable at the root of e, or returns "".
func (t *Tree) packageVar(e ast.Expr, extern map[types.Object]bool) string {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			if pkg, name := t.callee(x); pkg != "" {
				return pkg + "." + name
			}
			e = x.X
		case *ast.Ident:
			v, ok := t.info.Uses[x].(*types.Var)
			if ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() && !extern[v] {
				return x.Name
			}
			return ""
		default:
			return ""
		}
	}
}

func comments(groups ...*ast.CommentGroup) string {
	var b strings.Builder
	for _, g := range groups {
		if g == nil {
			continue
		}
		for _, c := range g.List {
			b.WriteString(c.Text + "\n")
		}
	}
	return b.String()
}

// marked reports whether text has the marker with a reason behind it.
func marked(text string) bool {
	_, why, ok := strings.Cut(text, markConst)
	why, _, _ = strings.Cut(why, "\n")
	return ok && strings.TrimSpace(why) != ""
}
