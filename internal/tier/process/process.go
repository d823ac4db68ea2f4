// Package process is the tier whose boxes are ordinary processes of this host's
// kernel behind Linux's own walls: namespaces, a root of their own, an
// allow-list of system calls, Landlock, control groups, and a host user that
// owns nothing else. It starts in milliseconds and is for code that is trusted
// not to carry a kernel exploit; what a box's own kernel would be for is the
// gvisor tier.
//
// The front builds what needs rights (group, store, mounts) and spawns the
// cell (package agent/cell) as PID 1 of the box's namespaces, which builds the
// rest from the inside and drops what it has. What every tier of host processes
// has around its walls is in package frame.
package process

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/cell"
	"github.com/sunaba-dev/sunaba/internal/agent/daemon"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs/parked"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
	"github.com/sunaba-dev/sunaba/internal/tier/frame/janitor"
)

// Config is what a Tier is made of.
type Config struct {
	State  string // folder for run folders and stores; the caller's own
	Images frame.Images
	Groups *cgroup.Manager // nil where no group can be made
	// Agent is the static program that becomes the cell. It must be able to
	// run under the name cell.ArgvCell.
	Agent *io.SectionReader
	// Program is the same, sealed already; New seals Agent if it is nil.
	Program *os.File
	Janitor bool // see frame.Site
	// Daemon is the agent of boxes that last; nil for Agent under that name.
	Daemon *io.SectionReader
}

// Tier implements box.Tier.
type Tier struct {
	*frame.Site
	cfg   Config
	agent *os.File // sealed
	first *os.File // sealed, executes the agent; nil if the agent is executed at once

	daemon func() (*os.File, error) // Config.Daemon, sealed for the first box that lasts
	held   atomic.Pointer[os.File]  // the same, once it was made
}

// New prepares the tier. It starts no process.
func New(cfg Config) (*Tier, error) {
	t := &Tier{cfg: cfg, Site: &frame.Site{State: cfg.State, Groups: cfg.Groups, Janitor: cfg.Janitor}}
	if err := t.Prepare(); err != nil {
		return nil, err
	}
	t.agent = cfg.Program
	if t.agent == nil {
		var err error
		if t.agent, err = host.Sealed(cell.ArgvCell, cfg.Agent); err != nil {
			return nil, err
		}
	}
	t.Site.Program = t.agent
	if first := firstStep(runtime.GOARCH); first != nil {
		var err error
		if t.first, err = host.Sealed("sunaba-first", io.NewSectionReader(bytes.NewReader(first), 0, int64(len(first)))); err != nil {
			return nil, err
		}
	}
	t.daemon = sync.OnceValues(func() (*os.File, error) {
		if cfg.Daemon == nil {
			return nil, nil
		}
		f, err := host.Sealed(daemon.Argv, cfg.Daemon)
		t.held.Store(f)
		return f, err
	})
	return t, nil
}

// Close gives up what New took. Boxes live on.
func (t *Tier) Close() error {
	if t.first != nil {
		t.first.Close()
	}
	if f := t.held.Load(); f != nil {
		f.Close()
	}
	return t.agent.Close()
}

// Name implements box.Tier.
func (t *Tier) Name() box.TierName { return box.TierProcess }

// Dispatch runs the part of a box that args[0] names and returns its exit code,
// or false at once. It serves builds without a separate agent, in which this
// whole program is the cell.
func Dispatch(args []string) (int, bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case cell.ArgvCell:
		return cell.Main(), true
	case cell.ArgvExec:
		return cell.ExecMain(), true
	case daemon.Argv:
		return daemon.Main(args), true
	case trial.Argv:
		return trial.Main(args), true
	case parked.Argv:
		return parked.Main(), true
	case janitor.Argv:
		return janitor.Main(args), true
	}
	return 0, false
}
