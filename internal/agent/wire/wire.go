// Package wire is how the front talks to PID 1 of a box's namespaces: requests
// and replies as JSON over one link, with open files beside them.
//
// The far end is trusted with its box and with nothing else. The front bounds
// the size of what it hears, gives every call a deadline, and takes no file.
package wire

import (
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Request goes to the far end, which answers with a Reply of the same Seq.
type Request struct {
	Seq  int
	Op   string // setup, exec, wait, signal; a tier may have more (terminal, space)
	Body json.RawMessage
}

// Reply answers a request, or (Seq 0) tells of an event.
type Reply struct {
	Seq   int
	Error string `json:",omitempty"`
	// Unusable says that the error is this host's inability.
	Unusable bool `json:",omitempty"`
	// Conflict says that the box's state does not permit it.
	Conflict bool   `json:",omitempty"`
	Event    string `json:",omitempty"`
	Body     json.RawMessage
}

// Exec starts a program; its files are stdin, stdout, stderr.
type Exec struct {
	File      string // what to execute; empty = Argv[0], looked up in PATH
	Argv, Env []string
	Dir       string
	Root      bool     // guest root, where the tier has one
	Caps      []string // guest capabilities, where the tier has them
	TTY       bool
	// Expire is when the far end ends itself, and with it the box, if the
	// program still runs; 0 is never. It is for a front that was stopped or is
	// stuck: one that is well has ended the program before.
	Expire time.Duration `json:",omitempty"`
}

// Expired is the event that is told when Exec.Expire has passed.
const Expired = "expired"

// Ending is the event that the far end tells before it ends by itself, with an End.
const Ending = "ending"

// End is the body of the event Ending.
type End struct {
	Why string // in words
}

// HowEnded says in words how a process ended.
func HowEnded(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return fmt.Sprintf("signal %d (%v)", ws.Signal(), ws.Signal())
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

// Started answers Exec.
type Started struct{ Pid int32 }

// Wait blocks until a program ends.
type Wait struct{ Pid int32 }

// Waited answers Wait.
type Waited struct {
	Status uint32 // as wait(2) encodes it
}

// Signal sends a signal.
type Signal struct {
	Pid    int32
	Signal int
	Group  bool // the process group that Pid leads, instead of Pid alone
}

// Limit is the body of the event "limit".
type Limit struct {
	Name   string // configuration name, as in box.LimitHit
	Source string
}

// LinkKind answers "link": what the descriptor is that comes with it.
type LinkKind struct{ Kind box.LinkKind }

// Space answers "space": what the writable places of a box hold and may hold.
type Space struct {
	Bytes, FreeBytes int64
	Files, FreeFiles int64
	// Shared is what shared memory holds, in bytes: the files of /dev/shm and
	// System V segments.
	Shared int64
}
