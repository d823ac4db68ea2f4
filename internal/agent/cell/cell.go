// Package cell is PID 1 of a box of the process tier.
//
// The cell is the agent's program, executed from a sealed file in memory. It
// builds the jail, drops every right it has, and then starts, watches and reaps
// programs at the front's request. It shares its user with the programs that it
// starts, so it is not dumpable, which keeps them from its memory and its
// descriptors, and it is PID 1, which keeps them from signalling it.
//
// Programs are started by one thread of the cell that has confined itself
// (package confine) before the first of them: they inherit its Landlock domain,
// its system call filter and its empty session keyring.
//
// In a box that lasts, the first of them is the box's agent (package
// agent/daemon), which starts all others; when it ends, so does the cell.
package cell

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/confine"
	"github.com/sunaba-dev/sunaba/internal/host/jail"
)

// Names that the agent's program goes by inside a box of this tier.
const (
	ArgvCell = "sunaba-cell"
	ArgvExec = "sunaba-exec"
)

// Descriptors that a cell is executed with, beside its link at 3: its own
// program, and the one that was executed before it and closes itself, if any.
const (
	SelfFD  = 4
	FirstFD = 5
)

// Setup is the body of the first request. Its files, in order: root, store if
// HasStore, one per bind, the seed archive if HasSeeds, the agent's program if
// Agent.HasProgram, the image's folder if Agent.HasTree.
type Setup struct {
	Dir        string
	Hostname   string
	HasStore   bool
	Kept       bool // the store holds the writable places as they are to be
	StoreBytes int64
	StoreFiles int64
	ShmBytes   int64
	Writable   []jail.Writable
	Binds      []string // targets
	HasDevices bool
	Apart      int      // so many of the first binds are the image's, see jail.Bind
	Sources    []Source // instead of files, where the front cannot make mounts
	HasSeeds   bool
	Linked     bool           // it has a second network interface; see package nic
	Domain     confine.Domain // what programs may reach
	// CellLimits hold for the cell and all it starts. Limits are set by each
	// program's own first step, which costs an execution more: for what the
	// cell could not live under itself.
	// RLIMIT_NPROC among Limits is the programs' alone: what the cell has of its
	// own is added.
	CellLimits, Limits map[int]uint64
	Agent              *Agent // of a box that lasts
}

// Agent says how to start the agent of a box that lasts.
type Agent struct {
	HasProgram bool // else it is the cell's own, under another name
	HasTree    bool // an extracted image that is to be held
	Argv, Env  []string
}

// AgentTasks is what the agent needs of tasks beyond those of the programs, in
// whose box it works when they have ended (see "end"): the threads of a Go
// program.
const AgentTasks = 24

// Source is a path that the cell clones in its own mount namespace, after
// checking that it still is the inode that the front judged.
type Source struct {
	Path     string
	Dev, Ino uint64
	ReadOnly bool
}

// Ready answers Setup.
type Ready struct {
	Applied confine.Applied // of every program, read back from the kernel
	Fresh   wire.Space      // before anything was put into the box
	Tasks   int64           // the cell's own threads, whose number stays
	Agent   int             // the agent's number in the box; 0 without one
}

type cell struct {
	server  *wire.Server
	set     Setup
	kids    *children
	starter *starter // nil before setup
	isSetUp bool
	agent   *os.File // where streams are handed over to the agent; nil without one
	tree    *os.File // held for the fronts' sake
	store   *os.File // its root folder; nil if the box has none or does not last
	link    box.Link // the host's end; its File is nil without one
}

// Main is the whole life of a cell.
func Main() int {
	server, err := wire.Open(os.NewFile(3, "link"))
	if err != nil {
		return 1
	}
	runtime.GOMAXPROCS(1)              // for the number of threads; see spare
	os.NewFile(SelfFD, "self").Close() // what it was executed from; /proc/self/exe goes on to name it
	unix.Umask(0o022)                  // not the caller's, for what is made here and for every program
	// A name for ps: it was executed by a number.
	if f, err := os.OpenFile("/proc/self/comm", os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString("init")
		f.Close()
	}
	if err := host.DefaultSignals(); err != nil { // of this process and of every program
		return 1
	}
	c := &cell{server: server, kids: newChildren()}
	c.server.Serve(c.handle)
	return 0 // the front is gone, or the box is at its end; with this process it goes
}

func (c *cell) handle(req wire.Request, files []*os.File) (any, error) {
	body := req.Body
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	switch req.Op {
	case "setup":
		return c.setup(body, files)
	case "exec":
		return c.exec(body, files)
	case "wait":
		var w wire.Wait
		if err := json.Unmarshal(body, &w); err != nil {
			return nil, err
		}
		status, err := c.kids.wait(int(w.Pid))
		return wire.Waited{Status: status}, err
	case "space":
		return c.space()
	case "store":
		return c.giveStore()
	case "link":
		return c.giveLink()
	case "agent":
		return c.stream()
	case "terminal":
		return c.terminal(body)
	case "signal":
		var s wire.Signal
		if err := json.Unmarshal(body, &s); err != nil {
			return nil, err
		}
		return struct{}{}, c.kids.signal(s)
	case "end":
		return struct{}{}, c.kids.end()
	}
	return nil, fmt.Errorf("cannot handle %q: no such request", req.Op)
}
