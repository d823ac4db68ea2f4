package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkErrorText wants errors that join into one sentence: they begin lower
// case, with the verb that failed, and end without punctuation.
func checkErrorText(t *Tree) []Finding {
	makers := map[string]int{"errors.New": 0, "fmt.Errorf": 0, t.Module + "/box.Errorf": 2}
	var out []Finding
	for _, f := range t.Files {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || f.Test {
				return true
			}
			pkg, name := t.callee(call.Fun)
			i, ok := makers[pkg+"."+name]
			if !ok || i >= len(call.Args) {
				return true
			}
			text, ok := literal(call.Args[i])
			if !ok {
				return true
			}
			first, _ := utf8.DecodeRuneInString(text)
			if text == "" || unicode.IsUpper(first) || unicode.IsSpace(first) {
				out = append(out, Finding{t.pos(call), fmt.Sprintf("error %q must begin lower case with the verb that failed: it is read in the middle of a sentence", text)})
			} else if strings.ContainsAny(text[len(text)-1:], ".!:; \n") {
				out = append(out, Finding{t.pos(call), fmt.Sprintf("error %q must end without punctuation: something may follow it", text)})
			}
			return true
		})
	}
	return out
}

// literal is the value of a string literal or of several joined by +; parts
// that are not literals count as "x".
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			return s, err == nil
		}
	case *ast.BinaryExpr:
		l, okl := literal(e.X)
		r, okr := literal(e.Y)
		if !okl {
			l = "x"
		}
		if !okr {
			r = "x"
		}
		return l + r, okl || okr
	}
	return "", false
}

// checkSkips wants a reason for every skipped test: a silent skip is a promise
// that nobody keeps.
func checkSkips(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.Files {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !f.Test {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return true
			}
			if len(call.Args) > 0 {
				if text, ok := literal(call.Args[0]); !ok || strings.TrimSpace(text) != "" {
					return true
				}
			}
			out = append(out, Finding{t.pos(call), "a skip must say why, and what would make the test run"})
			return true
		})
	}
	return out
}

// checkPackageComments wants exactly one comment per package, that teaches. A
// package of tests only has it in a test file.
func checkPackageComments(t *Tree) []Finding {
	commented := map[string]string{} // package -> file with the comment
	first := map[string]*File{}
	var out []Finding
	for _, f := range t.Files {
		name := strings.TrimSuffix(f.AST.Name.Name, "_test")
		key := f.Dir + " " + name
		if first[key] == nil {
			first[key] = f
		}
		if f.AST.Doc == nil || isDirective(f.AST.Doc) {
			continue
		}
		if commented[key] != "" {
			out = append(out, Finding{f.Path, "package " + name + " has a second package comment; the first is in " + commented[key]})
		}
		commented[key] = f.Path
		want := "Package " + name + " "
		if name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(f.AST.Doc.Text(), want) {
			out = append(out, Finding{f.Path, fmt.Sprintf("the package comment must begin %q", want)})
		}
	}
	for key, f := range first {
		if commented[key] == "" {
			out = append(out, Finding{f.Path, "the package has no package comment; write one that teaches what it is for"})
		}
	}
	return out
}

// isDirective reports whether a comment holds only lines like //go:build.
func isDirective(g *ast.CommentGroup) bool { return strings.TrimSpace(g.Text()) == "" }
