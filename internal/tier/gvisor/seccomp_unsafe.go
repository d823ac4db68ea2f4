package gvisor

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/gob"
	"runtime"
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	_ "gvisor.dev/gvisor/runsc/boot/filter" // the package whose variables are filled

	"github.com/sunaba-dev/sunaba/internal/tier/gvisor/filter"
)

//go:generate go run ./genseccomp seccomp_amd64.gob

// Filters for amd64. Other architectures compile theirs at every start.
//
//go:embed seccomp_amd64.gob
var seccompAMD64 []byte

//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

//go:linkname registerPrecompiledProgramsOnce gvisor.dev/gvisor/runsc/boot/filter.registerPrecompiledProgramsOnce
var registerPrecompiledProgramsOnce sync.Once

// installSeccomp hands the sentry its filters ready-made. gVisor looks one up
// by a key that spells out every option; what is not found, it compiles.
func installSeccomp() {
	if runtime.GOARCH != "amd64" {
		return
	}
	set, err := loadFilters()
	if err != nil {
		return // slower, not weaker
	}
	registerPrecompiledProgramsOnce.Do(func() {
		m := make(map[string]precompiledseccomp.Program, len(set.Programs))
		for _, p := range set.Programs {
			m[p.Key] = wireProgram(p)
		}
		precompiledPrograms = m
	})
}

func loadFilters() (filter.Set, error) {
	var set filter.Set
	err := gob.NewDecoder(bytes.NewReader(seccompAMD64)).Decode(&set)
	return set, err
}

func wireProgram(p filter.Program) precompiledseccomp.Program {
	out := precompiledseccomp.Program{Name: p.Key, VarOffsets: make(map[string][]int, len(p.Vars))}
	for i := 0; i+4 <= len(p.Code); i += 4 {
		out.Bytecode32 = append(out.Bytecode32, binary.LittleEndian.Uint32(p.Code[i:]))
	}
	for _, v := range p.Vars {
		out.VarOffsets[v.Name] = v.Offsets
	}
	return out
}
