package guest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// Start implements box.Guest. Whether the connection breaks before or after the
// agent heard of it, there is one process: the request has a number of its own.
func (g *Guest) Start(ctx context.Context, p box.ProcessSpec) (box.Process, error) {
	const op = "start process"
	if err := startable(op, p); err != nil {
		return box.Process{}, err
	}
	req := &agentpb.StartRequest{
		Argv: p.Argv, Env: p.Env, Dir: p.Dir, User: string(p.User), Stdin: p.Stdin, Tag: p.Tag,
		KeepBytes: uint64(p.Keep), OutputBytes: uint64(p.Output), Idempotency: number(),
		TimeoutMillis: millis(p.Timeout), GraceMillis: millis(p.Grace), Detached: p.Detached,
	}
	if p.TTY != nil {
		req.Terminal = &agentpb.Size{Rows: uint32(p.TTY.Rows), Cols: uint32(p.TTY.Cols)}
	}
	res, err := again(ctx, g, op, g.processes.Start, req)
	if err != nil {
		return box.Process{}, err
	}
	pid, err := checkPID(res.Pid)
	if err != nil {
		return box.Process{}, failed(ctx, op, err)
	}
	made := box.Process{PID: pid, Tag: p.Tag, Argv: slices.Clone(p.Argv), Dir: p.Dir, User: p.User, TTY: p.TTY != nil, Started: time.Now().UTC()}
	if made.User == "" {
		made.User = box.UserOrdinary
	}
	if c := g.link.now.Load(); made.Dir == "" && c != nil {
		made.Dir = c.dir
	}
	return made, nil
}

func startable(op string, p box.ProcessSpec) error {
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return refused(op, "no program is named")
	}
	for _, s := range slices.Concat(p.Argv, p.Env, []string{p.Dir, p.Tag, string(p.User)}) {
		if strings.Contains(s, "\x00") || !utf8.ValidString(s) {
			return refused(op, "%q is not text without NUL", cut(s, 100))
		}
	}
	switch {
	case len(p.Tag) > maxTag:
		return refused(op, "the tag has more than %d bytes", maxTag)
	case p.Dir != "" && !strings.HasPrefix(p.Dir, "/"):
		return refused(op, "the folder %q is not absolute", cut(p.Dir, 100))
	case p.Timeout < 0 || p.Grace < 0 || p.Output < 0 || p.Keep < 0 || p.Keep > box.MaxKeep:
		return refused(op, "a limit is out of range")
	}
	return nil
}

// number is fresh and not 0.
func number() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:]) | 1
}

// millis rounds up, so that a limit does not become none.
func millis(d time.Duration) uint64 {
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}

// resolve returns the number of the process that p names. A tag is that of the
// live process that has it, else of the last one that had it.
func (g *Guest) resolve(ctx context.Context, op string, p box.ProcessRef) (uint32, error) {
	if p.PID != 0 {
		if p.PID < 0 || p.PID > maxPID {
			return 0, box.Errorf(box.NotFound, op, "cannot %s: there is no process %d", op, p.PID)
		}
		return uint32(p.PID), nil
	}
	if p.Tag == "" {
		return 0, refused(op, "no process is named")
	}
	all, err := g.processesFor(ctx, op)
	if err != nil {
		return 0, err
	}
	found := 0
	for _, q := range all {
		if q.Tag == p.Tag {
			found = q.PID
			if q.End == nil {
				break
			}
		}
	}
	if found == 0 {
		return 0, box.Errorf(box.NotFound, op, "cannot %s: there is no process with the tag %q", op, cut(p.Tag, maxTag))
	}
	return uint32(found), nil
}

// Input implements box.Guest.
func (g *Guest) Input(ctx context.Context, p box.ProcessRef, in box.Input) (int64, error) {
	const op = "write input"
	if in.At < 0 || in.At+int64(len(in.Data)) < 0 {
		return 0, refused(op, "position %d is out of range", in.At)
	}
	pid, err := g.resolve(ctx, op, p)
	if err != nil {
		return in.At, err
	}
	at, rest := in.At, in.Data
	for {
		now := rest[:min(len(rest), piece)]
		last := len(now) == len(rest)
		// The same bytes at the same position are written once, so this may be
		// said twice.
		res, err := again(ctx, g, op, g.processes.Input, &agentpb.InputRequest{Pid: pid, At: uint64(at), Data: now, End: in.End && last})
		if err != nil {
			return at, err
		}
		if res.Taken < uint64(at) {
			return at, failed(ctx, op, lie("less input taken than before"))
		}
		// More than we gave: somebody else wrote there before.
		n := int(min(res.Taken-uint64(at), uint64(len(now))))
		at, rest = at+int64(n), rest[n:]
		if n < len(now) || last {
			return at, nil
		}
	}
}

// Signal implements box.Guest.
func (g *Guest) Signal(ctx context.Context, p box.ProcessRef, signal int, group bool) error {
	const op = "send signal"
	if signal < 1 || signal > 64 {
		return refused(op, "there is no signal %d", signal)
	}
	pid, err := g.resolve(ctx, op, p)
	if err != nil {
		return err
	}
	_, err = call(ctx, g, op, g.processes.Signal, &agentpb.SignalRequest{Pid: pid, Signal: uint32(signal), Group: group})
	return err
}

// Resize implements box.Guest.
func (g *Guest) Resize(ctx context.Context, p box.ProcessRef, size box.WindowSize) error {
	const op = "resize terminal"
	pid, err := g.resolve(ctx, op, p)
	if err != nil {
		return err
	}
	_, err = again(ctx, g, op, g.processes.Resize, &agentpb.ResizeRequest{Pid: pid, Terminal: &agentpb.Size{Rows: uint32(size.Rows), Cols: uint32(size.Cols)}})
	return err
}

// Forget implements box.Guest.
func (g *Guest) Forget(ctx context.Context, p box.ProcessRef) error {
	const op = "forget process"
	pid, err := g.resolve(ctx, op, p)
	if err != nil {
		return err
	}
	_, err = call(ctx, g, op, g.processes.Forget, &agentpb.ForgetRequest{Pid: pid})
	return err
}

// Processes implements box.Guest.
func (g *Guest) Processes(ctx context.Context) ([]box.Process, error) {
	return g.processesFor(ctx, "list processes")
}

func (g *Guest) processesFor(ctx context.Context, op string) ([]box.Process, error) {
	res, err := again(ctx, g, op, g.processes.List, &agentpb.ListProcessesRequest{})
	if err != nil {
		return nil, err
	}
	if len(res.Processes) > maxList {
		return nil, failed(ctx, op, lie("%d processes", len(res.Processes)))
	}
	all := make([]box.Process, 0, len(res.Processes))
	at := map[int]int{}
	for _, m := range res.Processes {
		p, err := process(m)
		if err != nil {
			return nil, failed(ctx, op, err)
		}
		// The kernel gives a number again: then it names the new process.
		if old, twice := at[p.PID]; twice {
			if all[old].End == nil {
				return nil, failed(ctx, op, lie("process %d twice", p.PID))
			}
			all[old].PID = 0
		}
		at[p.PID] = len(all)
		all = append(all, p)
	}
	return slices.DeleteFunc(all, func(p box.Process) bool { return p.PID == 0 }), nil
}

func process(m *agentpb.Process) (box.Process, error) {
	p := box.Process{Tag: m.Tag, Argv: m.Argv, Dir: m.Dir, User: box.User(m.User), TTY: m.Terminal, Started: past(m.StartedUnixMillis)}
	var err error
	if p.PID, err = checkPID(m.Pid); err != nil {
		return p, err
	}
	if err := checkText(m.Tag, maxTag, "a tag"); err != nil {
		return p, err
	}
	for _, a := range m.Argv {
		if err := checkText(a, maxMessage, "an argument"); err != nil {
			return p, err
		}
	}
	if m.Dir != "" {
		if err := checkPath(m.Dir); err != nil {
			return p, err
		}
	}
	if p.User != box.UserOrdinary && p.User != box.UserRoot {
		return p, lie("a user that is neither of the two")
	}
	if m.End != nil {
		if p.End, err = end(m.End); err != nil {
			return p, err
		}
		if p.End.Ended.Before(p.Started) {
			p.End.Ended = p.Started
		}
	}
	return p, nil
}

// end reads what became of a process. Its status is as wait(2) has it.
func end(m *agentpb.End) (*box.End, error) {
	e := &box.End{CPU: span(m.CpuMicros, time.Microsecond), Ended: past(m.EndedUnixMillis)}
	var err error
	if e.Stdout, err = count(m.StdoutBytes, "output"); err != nil {
		return nil, err
	}
	if e.Stderr, err = count(m.StderrBytes, "output"); err != nil {
		return nil, err
	}
	if e.MaxResident, err = count(m.MaxRssBytes, "memory"); err != nil {
		return nil, err
	}
	signal, code := m.Status&0x7f, m.Status>>8
	switch {
	case m.Status > 0xffff, signal == 0 && m.Status&0x80 != 0, signal > 64, signal != 0 && code != 0:
		return nil, lie("the status %#x of a process that has ended", m.Status)
	case signal != 0:
		e.Cause, e.Signal = box.Signaled, int(signal)
	default:
		e.Cause, e.ExitCode = box.Exited, int(code)
	}
	switch m.By {
	case agentpb.End_BY_UNSPECIFIED:
	case agentpb.End_BY_DEADLINE:
		e.Cause = box.Deadline
	case agentpb.End_BY_OUTPUT:
		e.Cause = box.OutputLimit
	case agentpb.End_BY_MEMORY:
		e.Cause = box.OutOfMemory
	default:
		return nil, lie("an unknown cause (%d)", m.By)
	}
	return e, nil
}
