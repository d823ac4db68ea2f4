// Command sunaba-agentd is the agent of a box that lasts; see package
// agent/daemon.
package main

import (
	"os"

	"github.com/sunaba-dev/sunaba/internal/agent/daemon"
)

func main() { os.Exit(daemon.Main(os.Args)) }
