// Command sunaba-agent is the program inside a box; see package agent.
package main

import (
	"os"

	"github.com/sunaba-dev/sunaba/internal/agent"
)

func main() { os.Exit(agent.Main(os.Args)) }
