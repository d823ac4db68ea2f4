// The runtime would hold files of the host's control groups open, to follow a
// quota that is the box's and not this process's; the sentry would have them.
//
//go:debug containermaxprocs=0

// Command sunaba runs untrusted code in boxes.
//
// This folder holds flags, wiring and what a person sees; one file per command.
// Everything else is in the rooms under internal.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/egress/gate"
	_ "github.com/sunaba-dev/sunaba/internal/procguard" // before gVisor's packages initialize
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
)

func main() {
	// Parts of a box are this program re-executed; they look at nothing else.
	if code, ok := process.Dispatch(os.Args); ok {
		os.Exit(code)
	}
	if code, ok := gate.Dispatch(os.Args); ok {
		os.Exit(code)
	}
	gvisor.Dispatch(os.Args)
	// A front's heap is a few megabytes, most of which live as long as it: a
	// first collection at the usual 4 MB costs more than it frees.
	debug.SetGCPercent(400)
	os.Exit(command(os.Args[1:]))
}

func command(args []string) int {
	if len(args) == 0 {
		usage(os.Stderr)
		return exitUsage
	}
	switch args[0] {
	case "run":
		return runCommand(args[1:])
	case "serve":
		return serveCommand(args[1:])
	case "box":
		return boxCommand(args[1:])
	case "snapshot":
		return nounCommand("snapshot", snapshotVerbs(), snapshotUsage, args[1:])
	case "volume":
		return nounCommand("volume", volumeVerbs(), volumeUsage, args[1:])
	case "recover":
		return recoverCommand(args[1:])
	case "policy":
		return policyCommand(args[1:])
	case "key":
		return keyCommand(args[1:])
	case "mcp":
		return mcpCommand(args[1:])
	case "doctor":
		return doctorCommand(args[1:])
	case "version", "--version":
		return versionCommand()
	case "help", "--help", "-h":
		if len(args) > 1 && args[1] != "help" {
			return command([]string{args[1], "-h"}) // of its own, also for `help box create`
		}
		usage(os.Stdout)
		return 0
	}
	fmt.Fprintf(os.Stderr, "sunaba: there is no command %q; the commands are %s\n", args[0], strings.Join(commands(), ", "))
	return exitUsage
}

func commands() []string {
	return []string{"run", "serve", "recover", "box", "snapshot", "volume", "policy", "key", "mcp", "doctor", "version", "help"}
}
