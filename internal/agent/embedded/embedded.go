// Package embedded holds the agent as a built program, one per architecture.
// `make` builds it into bin before the main program; in a plain `go build` the
// folder is empty but for a note, and the main program serves as the agent.
package embedded

import (
	"embed"
	"io"
)

//go:embed bin
var files embed.FS

// Agent returns the agent for an architecture, or nil if none was built. It is
// read where it lies in this program: a copy of it would cost as much as the
// rest of a box's preparation.
func Agent(arch string) *io.SectionReader {
	f, err := files.Open("bin/sunaba-agent-linux-" + arch)
	if err != nil {
		return nil
	}
	r, ok := f.(io.ReaderAt) // documented in package embed
	info, err := f.Stat()
	if !ok || err != nil {
		return nil
	}
	return io.NewSectionReader(r, 0, info.Size())
}
