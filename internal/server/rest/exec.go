package rest

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// maxKept bounds each stream of an answer that is one document, in bytes.
const maxKept = 1 << 20

type execRequest struct {
	BoxPath
	Accept string `header:"Accept" doc:"application/json waits for the program's end and answers with one document; else the answer is a stream of events."`
	Body   ExecRequest
}

// ExecRequest is a program in the foreground.
type ExecRequest struct {
	ProcessRequest
	Detached bool `json:"detached,omitempty" doc:"A caller that goes away does not end the program."`
}

// ExecResult is what became of a program in the foreground.
type ExecResult struct {
	PID        int     `json:"pid"`
	TimeoutSec float64 `json:"timeout_sec" doc:"The limit that was in force; 0 is none."`
	ProcessEnd
	Stdout          *string `json:"stdout" doc:"The raw bytes, if they are UTF-8; else null."`
	StdoutBase64    *string `json:"stdout_base64,omitempty" doc:"The raw bytes, if they are not UTF-8."`
	StdoutClean     string  `json:"stdout_clean" doc:"With control, escape, bidi and invisible characters shown as text: what a model should read."`
	StdoutTruncated bool    `json:"stdout_truncated"`
	Stderr          *string `json:"stderr"`
	StderrBase64    *string `json:"stderr_base64,omitempty"`
	StderrClean     string  `json:"stderr_clean"`
	StderrTruncated bool    `json:"stderr_truncated"`
	Truncated       bool    `json:"truncated" doc:"Either stream was: it keeps the first MiB."`
	DurationSec     float64 `json:"duration_sec"`
}

// exec runs a program in the foreground: it ends when its caller goes away,
// unless it is detached.
func (a *API) exec(w http.ResponseWriter, r *http.Request, in *execRequest) error {
	g, err := a.guest(r.Context(), in.ID, box.ScopeExec)
	if err != nil {
		return err
	}
	// A caller that goes away now must not leave a program that nobody knows of.
	ctx, cancel := a.call(context.WithoutCancel(r.Context()))
	p, data, err := launch(ctx, g, in.Body.ProcessRequest)
	cancel()
	if err != nil {
		return err
	}
	ref := box.ProcessRef{PID: p.PID}
	over := func() {}
	if !in.Body.Detached {
		l := a.leash(r.Context(), g, ref)
		defer l.release()
		over = l.over
	}
	if data != nil {
		feeding, stop := context.WithCancel(r.Context())
		defer stop()
		go feed(feeding, g, ref, data, !in.Body.Stdin)
	}
	if wantsJSON(in.Accept) {
		res, err := a.gather(r.Context(), g, p, &in.Body.ProcessRequest, over)
		if err != nil {
			return err
		}
		if err := writeJSON(w, res); err != nil {
			return err
		}
		// All of it is in the answer, which is whole and does not wait for this; the
		// next request of the connection does.
		_ = http.NewResponseController(w).Flush()
		forget, cancel := a.call(context.WithoutCancel(r.Context()))
		defer cancel()
		_ = box.Tidy(forget, g, ref) // what is left is bounded by the agent
		return nil
	}
	e := a.open(w, r)
	err = e.send("0-0", "start", Started{Process: processOf(p), TimeoutSec: in.Body.limit(), MaxOutput: in.Body.MaxOutput})
	if err == nil {
		t := &teller{e: e, request: &in.Body.ProcessRequest, over: over}
		err = t.follow(r.Context(), g, ref)
	}
	return e.close(err)
}

// leash ends a program with its caller.
type leash struct {
	kill  func()
	stop  func() bool // no longer watch for the caller's leaving
	ended bool
}

// leash kills a program when ctx ends, or at release, unless its end was seen
// before.
func (a *API) leash(ctx context.Context, g box.Guest, ref box.ProcessRef) *leash {
	kill := func() {
		ctx, cancel := a.call(context.WithoutCancel(ctx))
		defer cancel()
		g.Signal(ctx, ref, 9, true) // if the box does not answer, its own limits end it
	}
	return &leash{kill: kill, stop: context.AfterFunc(ctx, kill)}
}

// over is called when the end was seen and before the caller is told: many close
// their connection upon the answer, and a signal then is a use of the box, which
// would go on if it was paused since.
func (l *leash) over() {
	l.ended = true
	l.stop()
}

func (l *leash) release() {
	if l.stop() && !l.ended {
		l.kill()
	}
}

// feed writes the whole of data, as fast as the program reads.
func feed(ctx context.Context, g box.Guest, ref box.ProcessRef, data []byte, end bool) {
	for at := int64(0); ; {
		next, err := g.Input(ctx, ref, box.Input{At: at, Data: data[at:], End: end})
		if err != nil || next >= int64(len(data)) || next <= at {
			return // a program that ended reads no more
		}
		at = next
	}
}

func (a *API) gather(ctx context.Context, g box.Guest, p box.Process, req *ProcessRequest, over func()) (ExecResult, error) {
	var end *box.End
	out, errs := stream.NewCapture(maxKept), stream.NewCapture(maxKept)
	begin := time.Now()
	err := g.Follow(ctx, box.ProcessRef{PID: p.PID}, box.Positions{}, func(ev box.ProcessEvent) error {
		switch ev.Kind {
		case box.EventStdout:
			out.Write(ev.Data)
		case box.EventStderr:
			errs.Write(ev.Data)
		case box.EventEnd:
			end = ev.End
			over()
		}
		return nil
	})
	if err == nil && end == nil {
		err = box.Errorf(box.Unavailable, "follow", "cannot tell how the program ended: the stream broke off")
	}
	if err != nil {
		return ExecResult{}, err
	}
	res := ExecResult{PID: p.PID, TimeoutSec: req.limit(), ProcessEnd: endOf(*end, req), DurationSec: time.Since(begin).Seconds()}
	res.Stdout, res.StdoutBase64, res.StdoutClean = forms(out.Bytes())
	res.Stderr, res.StderrBase64, res.StderrClean = forms(errs.Bytes())
	res.StdoutTruncated, res.StderrTruncated = end.Stdout > int64(len(out.Bytes())), end.Stderr > int64(len(errs.Bytes()))
	res.Truncated = res.StdoutTruncated || res.StderrTruncated
	return res, nil
}

// forms gives bytes as they are in a report.
func forms(p []byte) (raw, b64 *string, clean string) {
	if utf8.Valid(p) {
		s := string(p)
		return &s, nil, stream.Clean(p)
	}
	s := base64.StdEncoding.EncodeToString(p)
	return nil, &s, stream.Clean(p)
}
