// Package daemon is the agent of a lasting box: it runs inside for as long as
// the box lives, starts programs as its children, keeps what they write and how
// they end, and reads and writes the box's files.
//
// It is asked over byte streams that the host opens (package agentpb has the
// services), one HTTP/2 connection each. It is as little trusted as anything
// else in a box: it can only describe its own box, and a name is only ever
// resolved by that box's own kernel.
//
// Three things shape it. It must answer while programs do their worst: so it
// holds its threads from the start (a Go program that cannot start a thread
// dies, and a fork bomb sees to that), waits for programs in the poller and not
// in system calls, and keeps a fixed amount for each. It must not lose a byte
// that somebody waits for: see output. And it must stay small, since every box
// pays for it: see lean.
package daemon

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/agent/clock"
	"github.com/sunaba-dev/sunaba/internal/agent/contexts"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Argv is the name that the program goes by.
const Argv = "sunaba-agentd"

// agent is the whole: what the services share.
type agent struct {
	args    args
	started time.Time
	starter *starter
	slots   slots
	table   *table
	code    *contexts.Service
}

// Main runs the agent until the box ends and returns its exit code. See
// [parseArgs] for the command line.
func Main(argv []string) int {
	a, err := parseArgs(argv)
	switch {
	case err != nil:
	case a.sync:
		unix.Sync() // of the box's own kernel, before it is paused
	case a.connect:
		err = connectTo(a.socket)
	default:
		err = serve(a)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Argv, err)
		return 1
	}
	return 0
}

func serve(a args) error {
	if err := host.DefaultSignals(); err != nil { // for every program: what is ignored is passed on
		return err
	}
	settings()
	s, err := newStarter()
	if err != nil {
		return err
	}
	d := &agent{args: a, started: time.Now(), starter: s, slots: newSlots(), table: newTable(s, clock.New())}
	streams := newStreams()
	if err := streams.open(a); err != nil {
		return err
	}
	d.watchMemory()
	spareThreads(spare)
	return d.serve(streams)
}

// settings are those of the process, as its programs inherit them or must not.
func settings() {
	// No descriptor of ours is a program's. A kernel without the call gave us
	// none but the one that we know.
	if unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC) != nil {
		unix.CloseOnExec(3)
	}
	// Other processes of the same user keep out of our memory: prctl(2).
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Umask(0o022)
	// A handler is not passed on to programs, as a signal that is ignored would be.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT)
}
