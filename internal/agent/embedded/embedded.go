// Package embedded holds the programs that run in boxes, built for this
// architecture: the small one that every box starts with, and the agent of those
// that last. `make` builds it into bin before the main program; in a plain `go build` the
// folder is empty but for a note, and the main program serves as the agent.
package embedded

import "io"

// Agent returns the small program, or nil if none was built.
func Agent() *io.SectionReader { return open("sunaba-agent-linux-" + arch) }

// Daemon returns the agent of lasting boxes, in the same way.
func Daemon() *io.SectionReader { return open("sunaba-agentd-linux-" + arch) }

// open returns a program where it lies in this one: a copy of it would cost as
// much as the rest of a box's preparation.
func open(name string) *io.SectionReader {
	f, err := files.Open("bin/" + name)
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
