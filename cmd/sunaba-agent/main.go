// The runtime would hold files of the host's control groups open, to follow a
// quota that is the programs' and not this process's.
//
//go:debug containermaxprocs=0

// Command sunaba-agent is the program inside a box; see packages agent and, for
// boxes of the process tier, agent/cell.
package main

import (
	"os"

	"github.com/sunaba-dev/sunaba/internal/agent"
	"github.com/sunaba-dev/sunaba/internal/agent/cell"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
	"github.com/sunaba-dev/sunaba/internal/tier/frame/janitor"
)

func main() {
	switch os.Args[0] {
	case cell.ArgvCell:
		os.Exit(cell.Main())
	case cell.ArgvExec:
		os.Exit(cell.ExecMain())
	case janitor.Argv:
		os.Exit(janitor.Main(os.Args))
	case trial.Argv:
		os.Exit(trial.Main(os.Args))
	}
	os.Exit(agent.Main(os.Args))
}
