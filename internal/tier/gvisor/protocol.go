package gvisor

import (
	"encoding/json"
	"time"
)

// The front (the process that asked for a box) and the runner (PID 1 of the
// box's namespaces) speak these messages over one link. The runner holds no
// right that the box's host user does not have; the front bounds and checks
// what it hears.

// request goes from front to runner; the runner answers each with a reply of
// the same Seq.
type request struct {
	Seq  int
	Op   string // setup, exec, signal, pause, collect
	Body json.RawMessage
}

// reply answers a request, or (Seq 0) tells of an event.
type reply struct {
	Seq   int
	Error string `json:",omitempty"`
	// Unusable says that the error is this host's inability.
	Unusable bool   `json:",omitempty"`
	Event    string `json:",omitempty"` // limit, sample
	Body     json.RawMessage
}

// setup is the first request. Its files, in order: root image, system image,
// store, then one per mount whose File is true, then the seed archive if any.
type setup struct {
	ID       string
	Dir      string // run folder; the runner owns it
	Hostname string
	Workdir  string
	Mounts   []setupMount
	Seeds    bool // an archive of seeds comes last
	Numbers  bootNumbers
	Rlimits  map[string]uint64 // RLIMIT_X -> soft and hard
	ShmBytes int64
	Debug    string // folder for gVisor's debug log; empty = none
	Watchdog int64  // bytes of guest memory; > 0 = report samples over it
}

type setupMount struct {
	Target   string
	ReadOnly bool
	// A prepared, detached mount that comes as a file; or, if File is false,
	// a path that the runner binds after checking that it still is the inode
	// that was judged.
	File     bool
	IsDir    bool
	Source   string
	Dev, Ino uint64
}

// ready answers setup.
type ready struct {
	SandboxPid, GoferPid int // in the runner's PID namespace
}

// execRequest starts a program; its files are stdin, stdout, stderr.
type execRequest struct {
	File      string // what to execute; empty = Argv[0], looked up in PATH
	Argv, Env []string
	Dir       string
	Root      bool     // guest root
	Caps      []string // guest capabilities
	TTY       bool
}

type execStarted struct{ Pid int32 }

// waitRequest blocks until the program ends.
type waitRequest struct{ Pid int32 }

type waitReply struct {
	Status uint32 // as wait(2) encodes it
}

type signalRequest struct {
	Pid    int32
	Signal int
	Group  bool // the process group that Pid leads, instead of Pid alone
}

// limitEvent is an event's body.
type limitEvent struct {
	Kind   string // limitKind as a string, or "memory"
	Source string
}

// startTimeout bounds each step of a box's start, waitTimeout each short call.
const (
	startTimeout = 30 * time.Second
	callTimeout  = 10 * time.Second
)
