// The runtime would hold files of the box's control groups open, to follow a
// quota that is the programs' and not this process's.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command sunaba-agentd is the agent of a box that lasts; see package
// agent/daemon.
package main

import (
	"os"

	"github.com/sunaba-dev/sunaba/internal/agent/daemon"
)

func main() { os.Exit(daemon.Main(os.Args)) }
