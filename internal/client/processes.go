package client

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
)

// Guest is a box of a daemon.
type Guest struct {
	c  *Client
	id box.ID
}

var _ box.Guest = (*Guest)(nil)

func asText(b []byte) (string, bool) { return string(b), utf8.Valid(b) }

func (g *Guest) path(rest ...string) string { return boxPath(g.id, rest...) }

func (g *Guest) process(p box.ProcessRef, rest string) string {
	name := "tag:" + p.Tag
	if p.PID != 0 {
		name = strconv.Itoa(p.PID)
	}
	return g.path("/processes/", segment(name), rest)
}

// processRequest says what to start, as JSON.
func processRequest(s box.ProcessSpec) (map[string]any, error) {
	env, err := environment(s.Env)
	if err != nil {
		return nil, err
	}
	in := map[string]any{"command": s.Argv, "timeout_sec": s.Timeout.Seconds()}
	set := func(name string, v any, is bool) {
		if is {
			in[name] = v
		}
	}
	set("env", env, env != nil)
	set("dir", s.Dir, s.Dir != "")
	set("user", s.User, s.User != "")
	set("stdin", true, s.Stdin)
	set("tag", s.Tag, s.Tag != "")
	set("grace_sec", s.Grace.Seconds(), s.Grace > 0)
	set("max_output", s.Output, s.Output > 0)
	set("keep", s.Keep, s.Keep > 0)
	if s.TTY != nil {
		in["tty"] = map[string]any{"rows": s.TTY.Rows, "cols": s.TTY.Cols}
	}
	return in, nil
}

type processJSON struct {
	PID     int       `json:"pid"`
	Tag     string    `json:"tag"`
	Argv    []string  `json:"argv"`
	Dir     string    `json:"dir"`
	User    box.User  `json:"user"`
	TTY     bool      `json:"tty"`
	Started time.Time `json:"started_at"`
	End     *endJSON  `json:"end"`
}

type endJSON struct {
	Cause       box.Cause `json:"cause"`
	ExitCode    *int      `json:"exit_code"`
	Signal      *int      `json:"signal"`
	StdoutBytes int64     `json:"stdout_bytes"`
	StderrBytes int64     `json:"stderr_bytes"`
	CPUSeconds  float64   `json:"cpu_seconds"`
	MaxResident int64     `json:"max_resident_bytes"`
	Ended       time.Time `json:"ended_at"`
}

func (e *endJSON) end() (*box.End, error) {
	if e == nil {
		return nil, nil
	}
	out := &box.End{Cause: e.Cause, Stdout: e.StdoutBytes, Stderr: e.StderrBytes, CPU: seconds(e.CPUSeconds), MaxResident: e.MaxResident, Ended: e.Ended}
	switch {
	case e.Cause == box.Exited && e.ExitCode != nil:
		out.ExitCode = *e.ExitCode
	case e.Cause == box.Signaled && e.Signal != nil:
		out.Signal = *e.Signal
	case e.Cause == box.Exited || e.Cause == box.Signaled || e.Cause == "":
		return nil, wrong("a process ended without a code or signal")
	}
	return out, nil
}

func (p processJSON) process() (box.Process, error) {
	end, err := p.End.end()
	return box.Process{PID: p.PID, Tag: p.Tag, Argv: p.Argv, Dir: p.Dir, User: p.User, TTY: p.TTY, Started: p.Started, End: end}, err
}

// Start implements box.Processes.
func (g *Guest) Start(ctx context.Context, s box.ProcessSpec) (box.Process, error) {
	in, err := processRequest(s)
	if err != nil {
		return box.Process{}, err
	}
	var p processJSON
	if err := g.c.do(ctx, call{method: http.MethodPost, path: g.path("/processes"), in: in}, &p); err != nil {
		return box.Process{}, err
	}
	return p.process()
}

// Attached runs a program that ends when this client goes away, however it goes.
// begun is told of it before the first event.
func (g *Guest) Attached(ctx context.Context, s box.ProcessSpec, begun func(box.Process), fn func(box.ProcessEvent) error) error {
	in, err := processRequest(s)
	if err != nil {
		return err
	}
	ask := func(string) call { return call{method: http.MethodPost, path: g.path("/exec"), in: in} }
	return g.c.listen(ctx, false, ask, func(e event) error {
		if e.name != "start" {
			return tell(e, fn)
		}
		var p processJSON
		if err := understand(e.data, &p); err != nil {
			return err
		}
		proc, err := p.process()
		if err == nil {
			begun(proc)
		}
		return err
	})
}

// Follow implements box.Processes. A connection that breaks is made anew.
func (g *Guest) Follow(ctx context.Context, p box.ProcessRef, from box.Positions, fn func(box.ProcessEvent) error) error {
	ask := func(last string) call {
		q := call{method: http.MethodGet, path: g.process(p, "/output")}
		switch {
		case last != "":
			q.header = map[string]string{"Last-Event-ID": last}
		case from.Stdout >= 0 && from.Stderr >= 0:
			q.query = url.Values{"from": {fmt.Sprintf("%d-%d", from.Stdout, from.Stderr)}}
		}
		return q
	}
	return g.c.listen(ctx, true, ask, func(e event) error { return tell(e, fn) })
}

// tell translates one event of a process.
func tell(e event, fn func(box.ProcessEvent) error) error {
	switch kind := box.EventKind(e.name); kind {
	case box.EventStdout, box.EventStderr:
		var p struct {
			At   int64  `json:"at"`
			Data string `json:"data"`
			Raw  []byte `json:"data_base64"`
		}
		if err := understand(e.data, &p); err != nil {
			return err
		}
		if p.Raw == nil {
			p.Raw = []byte(p.Data)
		}
		return fn(box.ProcessEvent{Kind: kind, At: p.At, Data: p.Raw})
	case box.EventEnd:
		var j endJSON
		if err := understand(e.data, &j); err != nil {
			return err
		}
		end, err := j.end()
		if err == nil {
			err = fn(box.ProcessEvent{Kind: kind, End: end})
		}
		if err == nil {
			err = errDone
		}
		return err
	case box.EventBeat:
		return fn(box.ProcessEvent{Kind: kind})
	}
	return nil // of a later version
}

// Input implements box.Processes.
func (g *Guest) Input(ctx context.Context, p box.ProcessRef, in box.Input) (int64, error) {
	v := url.Values{"at": {strconv.FormatInt(in.At, 10)}}
	const most = 512 << 10
	data := in.Data
	if len(data) > most {
		data = data[:most]
	} else if in.End {
		v.Set("end", "true")
	}
	var taken struct {
		Next int64 `json:"next"`
	}
	err := g.c.do(ctx, call{method: http.MethodPost, path: g.process(p, "/input"), query: v, body: bytes.NewReader(data)}, &taken)
	return taken.Next, err
}

// Signal implements box.Processes.
func (g *Guest) Signal(ctx context.Context, p box.ProcessRef, signal int, group bool) error {
	return g.c.do(ctx, call{method: http.MethodPost, path: g.process(p, "/signal"), in: map[string]any{"signal": strconv.Itoa(signal), "group": group}}, nil)
}

// Resize implements box.Processes.
func (g *Guest) Resize(ctx context.Context, p box.ProcessRef, size box.WindowSize) error {
	return g.c.do(ctx, call{method: http.MethodPost, path: g.process(p, "/resize"), in: map[string]any{"rows": max(size.Rows, 1), "cols": max(size.Cols, 1)}}, nil)
}

// Processes implements box.Processes.
func (g *Guest) Processes(ctx context.Context) ([]box.Process, error) {
	var out []box.Process
	err := pages(ctx, g.c, g.path("/processes"), url.Values{}, func(page struct {
		Processes []processJSON `json:"processes"`
		next
	}) error {
		for _, j := range page.Processes {
			p, err := j.process()
			if err != nil {
				return err
			}
			out = append(out, p)
		}
		return nil
	})
	return out, err
}

// Forget implements box.Processes.
func (g *Guest) Forget(ctx context.Context, p box.ProcessRef) error {
	return g.c.do(ctx, call{method: http.MethodDelete, path: g.process(p, "")}, nil)
}
