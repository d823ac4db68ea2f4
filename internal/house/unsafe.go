package house

import "strings"

// checkUnsafe keeps unsafe code where one knows to look for it.
func checkUnsafe(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.Files {
		name := strings.TrimSuffix(strings.TrimSuffix(f.Path, ".go"), "_test")
		if within(f.Dir, "internal/host/...", "internal/tier/gvisor/...") && strings.HasSuffix(name, "_unsafe") {
			continue
		}
		for _, spec := range f.AST.Imports {
			if spec.Path.Value == `"unsafe"` {
				out = append(out, Finding{t.pos(spec), "unsafe belongs in *_unsafe.go of internal/host or internal/tier/gvisor, where every line is read twice"})
			}
		}
		for _, g := range f.AST.Comments {
			for _, c := range g.List {
				if strings.HasPrefix(c.Text, "//go:linkname ") {
					out = append(out, Finding{t.pos(c), "go:linkname reaches past another package's promise; it belongs in *_unsafe.go of internal/host or internal/tier/gvisor"})
				}
			}
		}
	}
	return out
}

func checkCgo(t *Tree) []Finding {
	var out []Finding
	for _, f := range t.Files {
		for _, spec := range f.AST.Imports {
			if spec.Path.Value == `"C"` && f.Path != "cmd/sunaba/static_cgo.go" { // it links a plain build statically, and has no C
				out = append(out, Finding{t.pos(spec), "no cgo: the binary must start in an empty root with no loader, and C is where memory bugs live"})
			}
		}
	}
	return out
}
