package gvisor

import (
	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// The front (the process that asked for a box) and the runner (PID 1 of the
// box's namespaces) speak these messages over one link. The runner holds no
// right that the box's host user does not have; the front bounds and checks
// what it hears.

// setup is the first request. Its files, in order: root image, system image,
// store, then one per mount whose File is true, then the seed archive if any,
// then, for a box that lasts, a stream for its agent, unless it is made from a copy
// of memory, then the two ends of its link if it has one, the guest's first, then
// the parts of the copy that it is made from, if any.
type setup struct {
	ID       string
	Dir      string // run folder; the runner owns it
	Hostname string
	Workdir  string
	Mounts   []frame.Mount
	Seeds    bool             // an archive of seeds comes last
	Linked   bool             // the ends of a link come before what else comes last
	From     box.SnapshotKind // what it is made from; empty for nothing
	Lossy    bool             // that one had what a copy of files cannot keep
	Numbers  bootNumbers
	Rlimits  map[string]uint64 // RLIMIT_X -> soft and hard
	ShmBytes int64
	Debug    string // folder for gVisor's debug log; empty = none
	Watchdog int64  // bytes of guest memory; > 0 = report samples over it
	Lasting  *lasting
}

// saved answers "snapshot".
type saved struct {
	Lossy bool // a copy of files would be without something
}

// lasting is what a box that lasts has beside.
type lasting struct {
	Env    []string // of its agent
	Memory int64    // bytes of guest memory, over which the agent ends a program
	Alone  bool     // no control group bounds the box
}

// ready answers setup.
type ready struct {
	SandboxPid, GoferPid int // in the runner's PID namespace
}
