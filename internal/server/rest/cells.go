package rest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// CellRequest is a piece of code.
type CellRequest struct {
	Code       string   `json:"code"`
	ID         string   `json:"id,omitempty" maxLength:"64" doc:"A name for the cell, unique in its context. The same again runs nothing: it tells the story of that cell."`
	TimeoutSec *float64 `json:"timeout_sec,omitempty" minimum:"0" maximum:"31536000" doc:"It is interrupted after so long, and the variables stay; 60 if absent, 0 is never."`
	MaxOutput  int64    `json:"max_output,omitempty" minimum:"0" doc:"Bytes of text; what is more is counted and dropped. 0 is 1048576."`
	Detached   bool     `json:"detached,omitempty" doc:"A caller that goes away does not interrupt it."`
}

func (c CellRequest) cell(from uint64) (box.Cell, float64) {
	limit := float64(defaultTimeout)
	if c.TimeoutSec != nil {
		limit = *c.TimeoutSec
	}
	id := c.ID
	if id == "" {
		id = rand.Text()
	}
	return box.Cell{ID: id, Code: c.Code, Timeout: seconds(limit), From: from, Attached: !c.Detached, Output: c.MaxOutput}, limit
}

// CellQuery is how a cell is told.
type CellQuery struct {
	Accept string `header:"Accept" doc:"application/json waits for the end and answers with one document; else the answer is a stream of events."`
	Last   string `header:"Last-Event-ID" maxLength:"20" doc:"Number of the last event that arrived of the cell that id names."`
}

type runRequest struct {
	ContextPath
	CellQuery
	Body CellRequest
}

func (a *API) run(w http.ResponseWriter, r *http.Request, in *runRequest) error {
	g, err := a.guest(r.Context(), in.ID, box.ScopeExec)
	if err != nil {
		return err
	}
	return a.runCell(w, r, g, in.Context, in.Body, in.CellQuery)
}

type codeRequest struct {
	BoxPath
	CellQuery
	Body struct {
		Language string `json:"language" enum:"python,javascript,bash"`
		CellRequest
	}
}

func (a *API) code(w http.ResponseWriter, r *http.Request, in *codeRequest) error {
	g, err := a.guest(r.Context(), in.ID, box.ScopeExec)
	if err != nil {
		return err
	}
	ctx, cancel := a.call(r.Context())
	id, err := ofLanguage(ctx, g, in.Body.Language)
	cancel()
	if err != nil {
		return err
	}
	return a.runCell(w, r, g, id, in.Body.CellRequest, in.CellQuery)
}

// CellStart is the first event of a cell.
type CellStart struct {
	Context    string  `json:"context"`
	Cell       string  `json:"cell" doc:"With it, and Last-Event-ID, the story can be taken up again."`
	TimeoutSec float64 `json:"timeout_sec" doc:"0 is none."`
}

// CellText is text of a cell.
type CellText struct {
	Text string `json:"text"`
}

// CellValue is a value in every form that the interpreter offers.
type CellValue struct {
	Forms map[string]string `json:"forms" doc:"By MIME type: text as text, application/json as JSON, the rest in base64."`
	Main  bool              `json:"main" doc:"The value of the cell's last expression, not something shown on the way."`
}

// CellError is what code raised.
type CellError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// CellEnd is how a cell ended.
type CellEnd struct {
	Outcome  box.CellOutcome `json:"outcome" enum:"ok,error,interrupted,timeout,died"`
	TimedOut bool            `json:"timed_out"`
	Count    int             `json:"execution_count"`
	Duration float64         `json:"duration_sec"`
	Dropped  int64           `json:"dropped_bytes" doc:"Text beyond max_output."`
	Message  string          `json:"message,omitempty"`
}

// CellReport is a cell's story as one document.
type CellReport struct {
	CellStart
	CellEnd
	Results     []CellValue `json:"results"`
	Stdout      string      `json:"stdout"`
	StdoutClean string      `json:"stdout_clean" doc:"With control, escape, bidi and invisible characters shown as text."`
	Stderr      string      `json:"stderr"`
	StderrClean string      `json:"stderr_clean"`
	Truncated   bool        `json:"truncated" doc:"Not all is here: it keeps the first MiB of each text, and 8 MiB of results. The stream of events has all."`
	Error       *CellError  `json:"error,omitempty" doc:"Not there unless the code raised something."`
}

func cellEnd(e box.CellEnd, limit float64) CellEnd {
	out := CellEnd{Outcome: e.Outcome, TimedOut: e.Outcome == box.CellTimeout, Count: e.Count, Duration: e.Duration.Seconds(), Dropped: e.Dropped, Message: e.Detail}
	if out.TimedOut {
		out.Message = fmt.Sprintf("the cell was interrupted by its time limit of %g s (timeout_sec); 0 is none", limit)
	}
	return out
}

func (a *API) runCell(w http.ResponseWriter, r *http.Request, g box.Guest, id string, req CellRequest, q CellQuery) error {
	var from uint64
	if q.Last != "" {
		n, err := strconv.ParseUint(q.Last, 10, 62)
		if err != nil || req.ID == "" {
			return box.Errorf(box.Invalid, "run", "cannot go on behind event %q: it takes a number, and the cell's id", q.Last)
		}
		from = n + 1
	}
	cell, limit := req.cell(from)
	t := &cellTeller{start: CellStart{id, cell.ID, limit}}
	if wantsJSON(q.Accept) {
		t.report = &CellReport{CellStart: t.start, Results: []CellValue{}}
		t.out, t.errs = stream.NewCapture(maxKept), stream.NewCapture(maxKept)
		if err := t.follow(r.Context(), g, id, cell); err != nil {
			return err
		}
		rep := t.report
		rep.Stdout, rep.StdoutClean = string(t.out.Bytes()), stream.Clean(t.out.Bytes())
		rep.Stderr, rep.StderrClean = string(t.errs.Bytes()), stream.Clean(t.errs.Bytes())
		rep.Truncated = rep.Truncated || t.out.Truncated() || t.errs.Truncated()
		return writeJSON(w, rep)
	}
	t.e = a.open(w, r)
	return t.e.close(t.follow(r.Context(), g, id, cell))
}

// maxResults bounds the values in a report, in bytes.
const maxResults = 8 << 20

// cellTeller tells a cell's story, as events or into a report.
type cellTeller struct {
	start  CellStart
	e      *events
	report *CellReport
	out    *stream.Capture // of the report
	errs   *stream.Capture
	size   int // of the report's results, in bytes
	begun  bool
	ended  bool
}

func (t *cellTeller) follow(ctx context.Context, g box.Guest, id string, cell box.Cell) error {
	err := g.RunCell(ctx, id, cell, t.tell)
	if err == nil && !t.ended {
		err = box.Errorf(box.Unavailable, "run", "cannot tell how the cell ended: the stream broke off").WithHint("ask again with the cell's id")
	}
	return err
}

func (t *cellTeller) tell(ev box.CellEvent) error {
	if t.report != nil {
		return t.collect(ev)
	}
	if !t.begun {
		t.begun = true
		if err := t.e.send("", "start", t.start); err != nil {
			return err
		}
	}
	id := strconv.FormatUint(ev.Number, 10)
	switch {
	case ev.Kind == box.EventStdout || ev.Kind == box.EventStderr:
		return t.e.send(id, string(ev.Kind), CellText{ev.Text})
	case ev.Kind == box.EventResult && ev.Result != nil:
		return t.e.send(id, "result", CellValue(*ev.Result))
	case ev.Kind == box.EventError && ev.Error != nil:
		return t.e.send(id, "raised", CellError(*ev.Error))
	case ev.Kind == box.EventEnd && ev.End != nil:
		t.ended = true
		return t.e.send(id, "end", cellEnd(*ev.End, t.start.TimeoutSec))
	case ev.Kind == box.EventBeat:
		return t.e.send("", "beat", struct{}{})
	}
	return nil
}

func (t *cellTeller) collect(ev box.CellEvent) error {
	switch {
	case ev.Kind == box.EventStdout:
		t.out.Write([]byte(ev.Text))
	case ev.Kind == box.EventStderr:
		t.errs.Write([]byte(ev.Text))
	case ev.Kind == box.EventResult && ev.Result != nil:
		for kind, form := range ev.Result.Forms {
			t.size += len(kind) + len(form)
		}
		if t.size > maxResults {
			t.report.Truncated = true
			return nil
		}
		t.report.Results = append(t.report.Results, CellValue(*ev.Result))
	case ev.Kind == box.EventError && ev.Error != nil:
		e := CellError(*ev.Error)
		t.report.Error = &e
	case ev.Kind == box.EventEnd && ev.End != nil:
		t.ended, t.report.CellEnd = true, cellEnd(*ev.End, t.start.TimeoutSec)
	}
	return nil
}
