// Package embedded holds the agent as a built program, one per architecture.
// `make` builds it into bin before the main program; in a plain `go build` the
// folder is empty but for a note, and the main program serves as the agent.
package embedded

import "embed"

//go:embed bin
var files embed.FS

// Agent returns the agent for an architecture, or nil if none was built.
func Agent(arch string) []byte {
	b, err := files.ReadFile("bin/sunaba-agent-linux-" + arch)
	if err != nil {
		return nil
	}
	return b
}
