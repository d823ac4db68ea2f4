package gvisor

import (
	"fmt"
	"os"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/sunaba-dev/sunaba/internal/agent/daemon"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// The agent of a box that lasts is the guest's first process, as guest root. Its
// descriptor agentFD is a byte stream that the front holds the other end of.
// Further streams reach it through a socket in a folder that only guest root can
// enter: a second start of the same program connects there and passes its own
// descriptor agentFD on.
const (
	agentFile   = systemDir + "/" + daemon.Argv
	agentFD     = 3
	agentDir    = "/.sunaba-agent"
	agentSocket = agentDir + "/sock"
)

// agentStream is what a stream to the agent is called.
const agentStream = "a stream of its agent"

// agentTasks is what the agent may have of threads, and a second start of it,
// beyond what programs may.
const agentTasks = 64

// agentMemory is what the agent may have of the guest's memory beside that of
// programs. It is part of lastingOverhead.
const agentMemory = 16 << 20

// agentInit makes the agent the first process of the guest.
func (r *runner) agentInit(s *specs.Spec, l *lasting) {
	s.Process.User = specs.User{}
	s.Process.Args = []string{agentFile, "serve", r.set.Workdir, "root", "keep-code", "--socket", agentSocket}
	s.Process.Env = l.Env
	s.Process.Capabilities = &specs.LinuxCapabilities{
		Bounding: rootCaps[:], Effective: rootCaps[:], Permitted: rootCaps[:],
	}
	s.Mounts = append(s.Mounts, specs.Mount{
		Destination: agentDir, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "noexec", "mode=0700", "size=65536"},
	})
}

// agent makes a new stream to the agent and answers with the front's end of it.
func (r *runner) agent() (any, error) {
	if r.c == nil || r.set.Lasting == nil {
		return nil, fmt.Errorf("cannot reach the agent: this box has none")
	}
	ours, err := r.connect()
	if err != nil {
		return nil, err
	}
	return wire.WithFiles{Body: struct{}{}, Files: []*os.File{ours}}, nil
}

// connectTries is how often the agent is looked for, which may not listen yet.
const connectTries = 20

// connect has the agent serve one more stream, and returns the front's end of it.
// The connector may start in a box that is full of tasks.
func (r *runner) connect() (*os.File, error) {
	caps, err := guestCaps(connectCaps[:])
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the agent: %w", err)
	}
	defer null.Close()
	for try := 1; ; try++ {
		// A stream of its own for each: when a connector that found nobody ends, the
		// guest's kernel shuts down what it had.
		ours, theirs, err := host.StreamPair()
		if err != nil {
			return nil, err
		}
		err = r.connectOnce(caps, null, theirs)
		theirs.Close()
		if err == nil {
			return ours, nil
		}
		ours.Close()
		if try == connectTries {
			return nil, err
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (r *runner) connectOnce(caps *auth.TaskCapabilities, null, stream *os.File) error {
	pid, err := r.execute(&control.ExecArgs{
		Filename: agentFile, Argv: []string{agentFile, "connect", "--socket", agentSocket},
		Envv: []string{}, WorkingDirectory: "/", Capabilities: caps, NoNewPrivileges: true,
	}, agentStream, map[int]*os.File{0: null, 1: null, 2: null, agentFD: stream})
	if err != nil {
		return fmt.Errorf("cannot reach the agent: %w", err)
	}
	ws, err := r.c.WaitPID(pid)
	if err != nil {
		return fmt.Errorf("cannot reach the agent: %w", err)
	}
	if ws.ExitStatus() != 0 {
		return fmt.Errorf("cannot reach the agent: its connector ended with %d", ws.ExitStatus())
	}
	return nil
}

// giveStore answers with the file behind the writable layer, which the front
// compares with the one that it knows.
func (r *runner) giveStore() (any, error) {
	if r.store == nil {
		return nil, fmt.Errorf("cannot give the store: this box does not last")
	}
	f, err := host.Dup(r.store)
	if err != nil {
		return nil, err
	}
	return wire.WithFiles{Body: struct{}{}, Files: []*os.File{f}}, nil
}

// endWithGuest ends this process when the guest's first process has ended, or
// its kernel.
func (r *runner) endWithGuest() {
	defer close(r.guestEnded)
	var agent syscall.WaitStatus
	aerr := r.askFor(boot.ContMgrWait, &r.c.ID, &agent)
	guest, err := r.c.Sandbox.Wait(r.c.ID) // until its processes have gone, too
	switch {
	case aerr == nil:
		r.EndBecause("the agent ended: " + wire.HowEnded(agent) + r.limits.lastWords())
	case err == nil:
		r.EndBecause(r.kernelsEnd(syscall.WaitStatus(guest)))
	default:
		r.EndBecause("the guest's kernel ended: " + oneLine(err).Error())
	}
}

// kernelsEnd says how the guest's kernel ended.
func (r *runner) kernelsEnd(ws syscall.WaitStatus) string {
	return "the guest's kernel ended: " + wire.HowEnded(ws) + r.limits.lastWords()
}

// guard starts what watches over the guest from here.
func (r *runner) guard() error {
	l := r.set.Lasting
	switch {
	case l != nil:
		r.guestEnded = make(chan struct{})
		go r.endWithGuest()
		if l.Alone {
			return r.watchLasting(l.Memory)
		}
	case r.set.Watchdog > 0:
		return r.watchRun(r.set.Watchdog)
	}
	return nil
}

// limit bounds the tasks and the memory of a box that lasts in the guest's kernel
// (boxFull, memoryKeeper), with room for the agent beside the programs.
func (s *setup) limit(tasks, memory int64) {
	s.Numbers.Tasks, s.Numbers.Most = uint64(tasks), uint64(memory+agentMemory)
	s.Rlimits["RLIMIT_NPROC"] = uint64(tasks) + agentTasks
}

// told passes on what the guest's kernel reports.
func (r *runner) told(k limitKind) {
	if k == limitAttribute {
		r.lossy.Store(true)
		return
	}
	if k == limitMemory && r.set.Lasting == nil {
		return // not a word of this box's
	}
	r.Touched(wire.Limit{Name: k.name(), Source: "guest kernel"})
	if k == limitMemory {
		r.KilledForMemory() // last: an account with it has the limit, too
	}
}
