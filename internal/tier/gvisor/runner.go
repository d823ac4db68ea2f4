package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// runner is the process between the front and one box: PID 1 of the box's
// namespaces, an unprivileged user on the host, with no capability left once
// its few mounts stand. It drives gVisor as a library. When it dies, for
// whatever reason, the kernel ends everything in the box.
type runner struct {
	*wire.Server
	set  setup
	conf *config.Config
	c    *container.Container

	limits     limitReader
	store      *os.File   // of a box that lasts, for the fronts to come
	far        *os.File   // the host's end of the link, likewise; nil without one
	turn       sync.Mutex // held by pause and unpause
	handed     handed
	guestEnded chan struct{} // closed when that is told, of a box that lasts

	lossy atomic.Bool // a copy of files would be without something; see watchAttributes

	keys       sync.Once    // see takeTerminal
	onTerminal atomic.Int32 // guest's id of the program on it; 0 if there is none
}

// runnerMain is the whole life of a runner: answer requests until the front
// goes away. With an argument it goes on where an earlier image of this process
// stopped; see dropByExec.
func runnerMain(args []string) int {
	log.SetLevel(log.Warning)
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	var r *runner
	if len(args) == 2 {
		fd, err := strconv.Atoi(args[1])
		if err != nil {
			return 1
		}
		if r, err = resume(os.NewFile(uintptr(fd), "resume")); err != nil {
			return 1
		}
	} else {
		server, err := wire.Open(os.NewFile(3, "link"))
		if err != nil {
			return 1
		}
		r = &runner{Server: server}
	}
	r.Serve(r.handle)
	return 0 // the front is gone, or the box is at its end; with this process it goes
}

func (r *runner) handle(req wire.Request, files []*os.File) (any, error) {
	if req.Op == "setup" {
		return r.setup(req.Seq, req.Body, files) // which keeps the files
	}
	defer frame.CloseAll(files)
	switch req.Op {
	case "exec":
		return r.exec(req.Body, files)
	case "wait":
		var w wire.Wait
		if err := json.Unmarshal(req.Body, &w); err != nil {
			return nil, err
		}
		ws, err := r.c.WaitPID(w.Pid)
		r.limits.tell() // what the program ran into is said before its end
		return wire.Waited{Status: uint32(ws)}, err
	case "signal":
		var s wire.Signal
		if err := json.Unmarshal(req.Body, &s); err != nil {
			return nil, err
		}
		if s.Group {
			return struct{}{}, r.c.SignalProcessGroup(syscall.Signal(s.Signal), s.Pid)
		}
		return struct{}{}, r.c.SignalProcess(syscall.Signal(s.Signal), s.Pid)
	case "agent":
		return r.agent()
	case "store":
		return r.giveStore()
	case "link":
		return r.giveLink()
	case "processes":
		return r.processes()
	case "snapshot":
		return r.snapshot()
	case "snapshot files":
		return r.snapshotFiles()
	case "pause":
		return struct{}{}, r.pause()
	case "resume":
		return struct{}{}, r.unpause()
	default:
		return nil, fmt.Errorf("cannot handle %q: no such request", req.Op)
	}
}
