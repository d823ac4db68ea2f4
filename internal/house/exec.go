package house

import (
	"go/ast"
	"go/types"
)

const inherits = "a helper must never inherit our environment, which may hold a key; set Env in the same function (an empty slice, not nil, for none)"

// checkEnvironment wants an explicit environment for every child process: a
// variable that holds the result of exec.Command gets its Env assigned in the
// same function, and literals of exec.Cmd, os.ProcAttr and syscall.ProcAttr
// have the field. Test files are not exempt.
func checkEnvironment(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.Files {
		for _, decl := range f.AST.Decls {
			out = append(out, t.environmentIn(decl)...)
		}
	}
	return out
}

func (t *Tree) environmentIn(decl ast.Decl) []Finding {
	var out []Finding
	made := map[types.Object]ast.Node{} // variables that hold a command
	held := map[ast.Expr]bool{}         // calls whose result such a variable takes
	withEnv := map[types.Object]bool{}  // those whose Env is assigned
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if sel, ok := l.(*ast.SelectorExpr); ok && sel.Sel.Name == "Env" && len(n.Rhs) == len(n.Lhs) && !isNil(n.Rhs[i]) {
					if id, ok := sel.X.(*ast.Ident); ok {
						withEnv[t.object(id)] = true
					}
				}
				if id, ok := l.(*ast.Ident); ok && len(n.Rhs) == len(n.Lhs) && t.isCommand(n.Rhs[i]) {
					made[t.object(id)] = n
					held[n.Rhs[i]] = true
				}
			}
		case *ast.ValueSpec:
			for i, v := range n.Values {
				if t.isCommand(v) && i < len(n.Names) {
					made[t.object(n.Names[i])] = n
					held[v] = true
				}
			}
		case *ast.CallExpr:
			if t.isCommand(n) && !held[n] {
				out = append(out, Finding{t.pos(n), inherits})
			}
		case *ast.CompositeLit:
			pkg, name := t.callee(n.Type)
			if (pkg == "os/exec" && name == "Cmd" || (pkg == "os" || pkg == "syscall") && name == "ProcAttr") && !hasEnv(n) {
				out = append(out, Finding{t.pos(n), inherits})
			}
		}
		return true
	})
	for v, n := range made {
		if !withEnv[v] {
			out = append(out, Finding{t.pos(n), inherits})
		}
	}
	return out
}

// isCommand reports whether e is a call of exec.Command or CommandContext.
func (t *Tree) isCommand(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	pkg, name := t.callee(call.Fun)
	return pkg == "os/exec" && (name == "Command" || name == "CommandContext")
}

// object is the variable that id declares or uses.
func (t *Tree) object(id *ast.Ident) types.Object {
	if o := t.info.Defs[id]; o != nil {
		return o
	}
	return t.info.Uses[id]
}

func hasEnv(lit *ast.CompositeLit) bool {
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if k, ok := kv.Key.(*ast.Ident); ok && k.Name == "Env" && !isNil(kv.Value) {
			return true
		}
	}
	return false
}

func isNil(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "nil"
}
