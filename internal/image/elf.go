package image

import (
	"debug/elf"
	"os"
	"path"
	"slices"
	"strings"
)

// elfNeeds is what an ELF file must find to be loaded.
type elfNeeds struct {
	class   elf.Class
	machine elf.Machine
	interp  string   // the dynamic loader; empty for a library
	libs    []string // DT_NEEDED
	runpath []string // DT_RUNPATH or DT_RPATH, with $ORIGIN replaced
}

// readELF returns nil if the file is not ELF or is static.
func readELF(root, name string) *elfNeeds {
	f, err := elf.Open(root + name)
	if err != nil {
		return nil
	}
	defer f.Close()
	n := &elfNeeds{class: f.Class, machine: f.Machine}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err == nil {
				n.interp = strings.TrimRight(string(b), "\x00")
			}
		}
	}
	n.libs, _ = f.ImportedLibraries() // an error means: no dynamic section
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		values, _ := f.DynString(tag)
		for _, v := range values {
			for dir := range strings.SplitSeq(v, ":") {
				dir = strings.ReplaceAll(dir, "${ORIGIN}", path.Dir(name))
				dir = strings.ReplaceAll(dir, "$ORIGIN", path.Dir(name))
				if path.IsAbs(dir) {
					n.runpath = append(n.runpath, path.Clean(dir))
				}
			}
		}
	}
	if n.interp == "" && len(n.libs) == 0 {
		return nil
	}
	return n
}

// libraryDirs are searched where neither the file nor the cache says more:
// glibc's and musl's defaults, with and without multiarch.
func libraryDirs() []string {
	return []string{
		"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib",
		"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
		"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	}
}

// findLibrary returns the path of a library that fits the file, or "".
func findLibrary(root string, cache *ldCache, n *elfNeeds, lib string) string {
	if strings.Contains(lib, "/") {
		return lib
	}
	var candidates []string
	for _, dir := range n.runpath {
		candidates = append(candidates, path.Join(dir, lib))
	}
	if cache != nil {
		candidates = append(candidates, cache.paths(lib)...)
	}
	for _, dir := range libraryDirs() {
		candidates = append(candidates, path.Join(dir, lib))
	}
	i := slices.IndexFunc(candidates, func(p string) bool {
		if _, err := os.Stat(root + p); err != nil {
			return false
		}
		f, err := elf.Open(root + p)
		if err != nil {
			return false
		}
		defer f.Close()
		return f.Class == n.class && f.Machine == n.machine
	})
	if i < 0 {
		return ""
	}
	return candidates[i]
}
