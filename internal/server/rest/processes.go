package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// defaultKeep is how much of each stream is kept, in bytes: more than what can be
// under way to a client whose connection breaks.
const defaultKeep = 1 << 20

// defaultTimeout is that of a program for which none was asked, in seconds. It
// is in every answer that tells of the program.
const defaultTimeout = 60

// ProcessRequest says what to start.
type ProcessRequest struct {
	Command    []string          `json:"command,omitempty" minItems:"1" maxItems:"4096" doc:"A program and its arguments; or"`
	Shell      string            `json:"shell,omitempty" doc:"a line for /bin/sh."`
	Env        map[string]string `json:"env,omitempty" doc:"Environment of the program."`
	Dir        string            `json:"dir,omitempty" maxLength:"4096" doc:"Absolute; the box's working folder if absent."`
	User       string            `json:"user,omitempty" enum:"user,root"`
	Stdin      bool              `json:"stdin,omitempty" doc:"Keep standard input open for input; else it reads as empty, or as stdin_data."`
	StdinData  *string           `json:"stdin_data,omitempty" doc:"The first of its standard input, as text; or"`
	StdinBytes []byte            `json:"stdin_base64,omitempty" doc:"in base64."`
	Tag        string            `json:"tag,omitempty" maxLength:"128" doc:"A name for it, unique among the box's live programs."`
	TTY        *WindowSize       `json:"tty,omitempty" doc:"Gives it a terminal of this size."`
	TimeoutSec *float64          `json:"timeout_sec,omitempty" minimum:"0" maximum:"31536000" doc:"It is ended after so long; 60 if absent, 0 is never."`
	GraceSec   float64           `json:"grace_sec,omitempty" minimum:"0" maximum:"60" doc:"Between SIGTERM and SIGKILL then."`
	MaxOutput  int64             `json:"max_output,omitempty" minimum:"0" doc:"It is ended when it writes more; 0 is no bound."`
	Keep       int64             `json:"keep,omitempty" minimum:"0" maximum:"4194304" doc:"How many bytes of the end of each stream stay for who comes late, and for a stream that is cut; 0 is 1048576."`
}

// WindowSize is a terminal's size.
type WindowSize struct {
	Rows uint16 `json:"rows" minimum:"1" maximum:"65535"`
	Cols uint16 `json:"cols" minimum:"1" maximum:"65535"`
}

// spec translates, and returns what goes to standard input first.
func (r ProcessRequest) spec() (box.ProcessSpec, []byte, error) {
	if (r.Shell == "") == (r.Command == nil) {
		return box.ProcessSpec{}, nil, box.Errorf(box.Invalid, "start", "cannot start this: it takes either command or shell")
	}
	data, err := either("stdin_data", r.StdinData, r.StdinBytes)
	if err != nil {
		return box.ProcessSpec{}, nil, err
	}
	argv := r.Command
	if argv == nil {
		argv = []string{"/bin/sh", "-c", r.Shell}
	}
	s := box.ProcessSpec{
		Command: box.Command{Argv: argv, Dir: r.Dir, User: box.User(r.User)},
		Stdin:   r.Stdin || data != nil, Tag: r.Tag,
		Timeout: seconds(r.limit()), Grace: seconds(r.GraceSec), Output: r.MaxOutput, Keep: r.Keep,
	}
	if s.Keep == 0 {
		s.Keep = defaultKeep
	}
	for name, value := range r.Env {
		s.Env = append(s.Env, name+"="+value)
	}
	slices.Sort(s.Env)
	if r.TTY != nil {
		s.TTY = &box.WindowSize{Rows: r.TTY.Rows, Cols: r.TTY.Cols}
	}
	return s, data, nil
}

func (r ProcessRequest) limit() float64 {
	if r.TimeoutSec == nil {
		return defaultTimeout
	}
	return *r.TimeoutSec
}

// Process is what is known of a program.
type Process struct {
	PID     int         `json:"pid"`
	Tag     string      `json:"tag"`
	Argv    []string    `json:"argv"`
	Dir     string      `json:"dir"`
	User    box.User    `json:"user"`
	TTY     bool        `json:"tty"`
	Started time.Time   `json:"started_at"`
	End     *ProcessEnd `json:"end,omitempty" doc:"Not there while it lives."`
}

// ProcessEnd is what became of a program.
type ProcessEnd struct {
	Cause       box.Cause `json:"cause" doc:"Why it ended, told by whoever ended it and never guessed from an exit code."`
	ExitCode    *int      `json:"exit_code" doc:"Null unless cause is exited."`
	Signal      *int      `json:"signal" doc:"Null unless cause is signaled."`
	TimedOut    bool      `json:"timed_out"`
	StdoutBytes int64     `json:"stdout_bytes"`
	StderrBytes int64     `json:"stderr_bytes"`
	CPUSeconds  float64   `json:"cpu_seconds"`
	MaxResident int64     `json:"max_resident_bytes"`
	Ended       time.Time `json:"ended_at"`
	Message     string    `json:"message,omitempty" doc:"What a limit has done, for a person."`
}

func processOf(p box.Process) Process {
	out := Process{PID: p.PID, Tag: p.Tag, Argv: list(p.Argv), Dir: p.Dir, User: p.User, TTY: p.TTY, Started: p.Started.UTC()}
	if p.End != nil {
		e := endOf(*p.End, nil)
		out.End = &e
	}
	return out
}

// endOf translates. The request, if it is known, has the limits.
func endOf(e box.End, r *ProcessRequest) ProcessEnd {
	out := ProcessEnd{
		Cause: e.Cause, TimedOut: e.Cause == box.Deadline, StdoutBytes: e.Stdout, StderrBytes: e.Stderr,
		CPUSeconds: e.CPU.Seconds(), MaxResident: e.MaxResident, Ended: e.Ended.UTC(),
	}
	switch e.Cause {
	case box.Exited:
		out.ExitCode = &e.ExitCode
	case box.Signaled:
		out.Signal = &e.Signal
	case box.Deadline:
		out.Message = "the program was ended by its time limit (timeout_sec)"
		if r != nil {
			out.Message = fmt.Sprintf("the program was ended by its time limit of %g s (timeout_sec); 0 is none", r.limit())
		}
	case box.OutputLimit:
		out.Message = "the program was ended because it wrote more than max_output"
	case box.OutOfMemory:
		out.Message = "the program was ended because the box had no memory left (resource_limits.memory)"
	case box.Lost:
		out.Message = "the program is gone, and nobody saw how it ended"
	}
	return out
}

// Started is a program that was just started, with the limits in force.
type Started struct {
	Process
	TimeoutSec   float64 `json:"timeout_sec" doc:"0 is none."`
	MaxOutput    int64   `json:"max_output" doc:"0 is none."`
	StdinWritten int64   `json:"stdin_written" doc:"How many bytes of stdin_data were taken; the rest can follow as input from there."`
}

type startRequest struct {
	BoxPath
	Body ProcessRequest
}

func (a *API) start(ctx context.Context, in *startRequest) (Started, error) {
	g, err := a.guest(ctx, in.ID, box.ScopeExec)
	if err != nil {
		return Started{}, err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	p, data, err := launch(ctx, g, in.Body)
	if err != nil {
		return Started{}, err
	}
	s := Started{Process: processOf(p), TimeoutSec: in.Body.limit(), MaxOutput: in.Body.MaxOutput}
	if data != nil {
		// One call: the program need not read, and the caller may go on from there.
		s.StdinWritten, err = g.Input(ctx, box.ProcessRef{PID: p.PID}, box.Input{Data: data, End: !in.Body.Stdin})
	}
	return s, err
}

func launch(ctx context.Context, g box.Guest, r ProcessRequest) (box.Process, []byte, error) {
	spec, data, err := r.spec()
	if err != nil {
		return box.Process{}, nil, err
	}
	p, err := g.Start(ctx, spec)
	return p, data, err
}

// ProcessPath names a program of a box.
type ProcessPath struct {
	BoxPath
	PID string `path:"pid" maxLength:"160" doc:"Its number, or tag: and its tag."`
}

func (p ProcessPath) ref() (box.ProcessRef, error) {
	if tag, ok := strings.CutPrefix(p.PID, "tag:"); ok && tag != "" {
		return box.ProcessRef{Tag: tag}, nil
	}
	n, err := strconv.ParseUint(p.PID, 10, 31)
	if err != nil || n == 0 {
		return box.ProcessRef{}, box.Errorf(box.Invalid, "find process", "cannot use %q as a process: it is neither a number nor tag:NAME", p.PID)
	}
	return box.ProcessRef{PID: int(n)}, nil
}

// process returns the box and the program that a path names.
func (a *API) process(ctx context.Context, p ProcessPath, s box.Scope) (box.Guest, box.ProcessRef, error) {
	g, err := a.guest(ctx, p.ID, s)
	if err != nil {
		return nil, box.ProcessRef{}, err
	}
	ref, err := p.ref()
	return g, ref, err
}

// find looks a program up.
func find(ctx context.Context, g box.Guest, ref box.ProcessRef) (box.Process, error) {
	all, err := g.Processes(ctx)
	if err != nil {
		return box.Process{}, err
	}
	for _, p := range slices.Backward(all) { // the youngest has the tag
		if p.PID == ref.PID || ref.PID == 0 && p.Tag == ref.Tag {
			return p, nil
		}
	}
	return box.Process{}, box.Errorf(box.NotFound, "find process", "cannot find the process: it is not there, or was forgotten")
}

func (a *API) processInfo(ctx context.Context, in *ProcessPath) (Process, error) {
	g, ref, err := a.process(ctx, *in, box.ScopeRead)
	if err != nil {
		return Process{}, err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	p, err := find(ctx, g, ref)
	if err != nil {
		return Process{}, err
	}
	return processOf(p), nil
}

type processList struct {
	BoxPath
	PageQuery
}

// ProcessPage is a page of programs.
type ProcessPage struct {
	Processes []Process `json:"processes" doc:"In the order of their start."`
	Next      string    `json:"next" doc:"The cursor of the next page; empty at the end."`
}

func (a *API) processList(ctx context.Context, in *processList) (ProcessPage, error) {
	g, err := a.guest(ctx, in.ID, box.ScopeRead)
	if err != nil {
		return ProcessPage{}, err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	all, err := g.Processes(ctx)
	if err != nil {
		return ProcessPage{}, err
	}
	some, next, err := page(all, in.PageQuery)
	if err != nil {
		return ProcessPage{}, err
	}
	out := ProcessPage{Processes: []Process{}, Next: next}
	for _, p := range some {
		out.Processes = append(out.Processes, processOf(p))
	}
	return out, nil
}

// page cuts a list that fits into memory. The cursor is the number of entries
// before it: what is started or forgotten meanwhile may shift a page.
func page[T any](all []T, q PageQuery) ([]T, string, error) {
	from, limit, err := q.window()
	if err != nil {
		return nil, "", err
	}
	all = all[min(from, len(all)):]
	if len(all) <= limit {
		return all, "", nil
	}
	return all[:limit], strconv.Itoa(from + limit), nil
}

func (q PageQuery) window() (from, limit int, err error) {
	limit = q.Limit
	if limit == 0 {
		limit = 100
	}
	if q.Cursor == "" {
		return 0, limit, nil
	}
	n, err := strconv.ParseUint(q.Cursor, 10, 31)
	if err != nil {
		return 0, 0, box.Errorf(box.Invalid, "read query", "cannot use this cursor: no page has it")
	}
	return int(n), limit, nil
}

// rawJSON decodes a body that a handler reads itself, as strictly as others.
func rawJSON(r *http.Request, most int64, v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	if err == nil {
		err = plainJSON(data)
	}
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err = dec.Decode(v); err == nil && dec.More() {
			err = errors.New("it has more than one value")
		}
	}
	return bodyError(err)
}
