// Package filter is the file format of seccomp programs that were compiled
// ahead of time, shared by the generator and the sentry that loads them.
//
// A program is only as fresh as the gVisor it was compiled from: the set names
// the version, and a test compares it with the one in go.mod.
package filter

import (
	"runtime/debug"
)

// Set is the content of one file.
type Set struct {
	Gvisor   string // module version that the programs were compiled from
	Programs []Program
}

// Program is one filter under gVisor's own key for its options.
type Program struct {
	Key  string
	Code []byte // 32-bit words, little endian
	Vars []Var
}

// Var says where a value that is known only at run time goes.
type Var struct {
	Name    string
	Offsets []int // nil if the program does not use it
}

// GvisorVersion is the version of gVisor in this program, or "" if unknown.
func GvisorVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, d := range info.Deps {
		if d.Path == "gvisor.dev/gvisor" {
			return d.Version
		}
	}
	return ""
}
