package gvisor

import (
	"os"
	"strings"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/sunaba-dev/sunaba/internal/agent"
	"github.com/sunaba-dev/sunaba/internal/agent/daemon"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// Names that this program goes by when it re-executes itself for a part of a
// box. The first is ours, the others are given by gVisor's own code.
const (
	argvRunner  = "sunaba-runner"
	argvSandbox = "runsc-sandbox"  // the sentry, twice: before and after it drops its rights
	argvGofer   = "runsc-gofer"    // the file server, if the box has host folders
	argvUmount  = "/proc/self/exe" // unmounts /proc for a sentry that no longer may
)

// Dispatch runs the part of a box that args[0] names and never returns, or
// returns false at once if this is an ordinary start of the program. It must
// be the first thing that main does, before flags or files are looked at.
func Dispatch(args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0] {
	case argvRunner:
		os.Exit(runnerMain(args))
	case trial.Argv:
		os.Exit(trial.Main(args))
	case argvProbe:
		os.Exit(probeMain(args))
	case frame.AgentName:
		os.Exit(agent.Main(args))
	case agentFile:
		os.Exit(daemon.Main(args))
	case argvSandbox:
		scrubEnvironment(args)
		if config.CgoEnabled {
			// For the second execution: the C library would register restartable
			// sequences (rseq(2)), which the memory of systrap's stubs does not
			// survive.
			os.Setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0:glibc.malloc.arena_max=1")
		}
		installSeccomp()
		steadyStub()
		os.Args = takePassedFiles(args)
		runsc(&bootCommand{})
	case argvGofer:
		scrubEnvironment(args)
		os.Args = goferUser(args)
		dropGoferCaps()
		runsc(&cmd.Gofer{})
	case argvUmount:
		if len(args) > 1 && args[1] == "umount" || len(args) > 2 && strings.HasPrefix(args[1], "-") {
			runsc(&sentrycmd.Umount{})
		}
		return false
	default:
		return false
	}
	return true
}

// runsc hands over to gVisor's command line with one command in its table. Its
// messages are not even put together, unless --debug sets the level anew: nobody
// reads them, and they are a fiftieth of a box's cost.
func runsc(c util.SubCommand) {
	log.SetLevel(log.Warning)
	cli.Run(nil, map[util.SubCommand]string{c: "internal"}, []subcommands.Command{})
}
