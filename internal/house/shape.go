package house

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// The sizes that the code bases we admire share.
const (
	maxLines    = 800
	medianLines = 150
	p90Lines    = 450
	// fewFiles is the number of files below which a median says nothing.
	fewFiles = 10
)

// checkSizes bounds every file, and the median and the 90th
// percentile of those that are not tests.
func checkSizes(t *Tree) []Finding {
	var out []Finding
	var sizes []int
	for _, f := range t.Files {
		if f.Lines > maxLines {
			out = append(out, Finding{f.Path, fmt.Sprintf("%d lines, at most %d: split it by verb before it knows everything", f.Lines, maxLines)})
		}
		if !f.Test {
			sizes = append(sizes, f.Lines)
		}
	}
	if len(sizes) < fewFiles {
		return out
	}
	slices.Sort(sizes)
	if m := sizes[len(sizes)/2]; m > medianLines {
		out = append(out, Finding{".", fmt.Sprintf("the median file has %d lines, at most %d", m, medianLines)})
	}
	if p := sizes[len(sizes)*9/10]; p > p90Lines {
		out = append(out, Finding{".", fmt.Sprintf("one file in ten has %d lines or more, at most %d", p, p90Lines)})
	}
	return out
}

// checkCore pins the methods of the two interfaces that every tier implements.
// They grow by optional interfaces (Collector, Pauser), never by a method.
func checkCore(t *Tree) []Finding {
	core := map[string][]string{
		"Tier": {"Create", "Name", "Probe", "Recover", "Sweep"},
		"Box":  {"Destroy", "ID", "Run", "State", "Weak"},
	}
	var out []Finding
	for _, f := range t.Files {
		if f.Dir != "box" {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || core[spec.Name.Name] == nil {
				return true
			}
			iface, ok := spec.Type.(*ast.InterfaceType)
			if !ok {
				return true
			}
			var got []string
			for _, m := range iface.Methods.List {
				for _, name := range m.Names {
					got = append(got, name.Name)
				}
				if len(m.Names) == 0 {
					got = append(got, "an embedded interface")
				}
			}
			slices.Sort(got)
			if want := core[spec.Name.Name]; !slices.Equal(got, want) {
				out = append(out, Finding{t.pos(spec), fmt.Sprintf("box.%s has %s, want %s: a new method breaks every tier; use an optional interface", spec.Name.Name, strings.Join(got, ", "), strings.Join(want, ", "))})
			}
			return true
		})
	}
	return out
}
