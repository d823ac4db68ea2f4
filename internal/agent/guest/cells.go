package guest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// maxForms bounds the forms of one result.
const maxForms = 64

// What results and errors of one cell may be together. An honest agent leaves out
// what is beyond 256, or 3 MiB (docs/contexts.md); callers keep them all.
const (
	maxShown = 8 << 20
	maxShows = 512
)

// RunCell implements box.Guest.
func (g *Guest) RunCell(ctx context.Context, id string, cell box.Cell, fn func(box.CellEvent) error) error {
	const op = "run cell"
	if err := known(op, id); err != nil {
		return err
	}
	switch {
	case cell.ID == "" || len(cell.ID) > maxTag || strings.Contains(cell.ID, "\x00") || !utf8.ValidString(cell.ID):
		return refused(op, "a cell's id is text of 1 to %d bytes", maxTag)
	case !utf8.ValidString(cell.Code):
		return refused(op, "the code is not UTF-8")
	case cell.Timeout < 0 || cell.Output < 0:
		return refused(op, "a limit is out of range")
	}
	output := cell.Output
	if output == 0 {
		output = box.DefaultCellOutput
	}
	// A byte that is no text may become three (U+FFFD).
	t := story{next: max(cell.From, 1), first: true, text: 3*output + 64<<10}
	last := func(e box.CellEvent) bool { return e.Kind == box.EventEnd }
	return resumed(ctx, g, op, fn, func(fn func(box.CellEvent) error) error {
		s, err := hear(ctx, g, op, g.contexts.Run, &agentpb.RunRequest{
			Context: id, Cell: cell.ID, Code: cell.Code, TimeoutMillis: millis(cell.Timeout),
			From: t.next, Attached: cell.Attached, OutputBytes: uint64(output),
		}, func() {})
		if err != nil {
			return err
		}
		defer s.close()
		return passOn(s, t.event, last, fn)
	})
}

// story is how far a cell's story was told.
type story struct {
	next  uint64 // number of the next event
	first bool   // what is before it may be forgotten
	text  int64  // bytes of output that may still come
	shown int64  // bytes of results and errors that have come
	shows int    // and how many
	beats beats
}

func (t *story) event(m *agentpb.RunResponse) (box.CellEvent, error) {
	e := box.CellEvent{Number: m.Number}
	if _, beat := m.Event.(*agentpb.RunResponse_Beat); beat {
		if m.Number != 0 {
			return e, lie("a beat with a number")
		}
		if !t.beats.ok() {
			return e, lie("beats without a pause")
		}
		e.Kind = box.EventBeat
		return e, nil
	}
	switch {
	case m.Number < t.next, m.Number > t.next && !t.first, m.Number > 1<<62:
		return e, lie("event %d where %d is due", m.Number, t.next)
	}
	t.next, t.first = m.Number+1, false
	var err error
	switch v := m.Event.(type) {
	case *agentpb.RunResponse_Stdout:
		e.Kind, e.Text = box.EventStdout, v.Stdout
	case *agentpb.RunResponse_Stderr:
		e.Kind, e.Text = box.EventStderr, v.Stderr
	case *agentpb.RunResponse_Result:
		e.Kind = box.EventResult
		e.Result, err = result(v.Result)
		for name, form := range v.Result.GetForms() {
			t.shown += int64(len(name) + len(form))
		}
		t.shows++
	case *agentpb.RunResponse_Failure:
		e.Kind = box.EventError
		e.Error = &box.CellError{Name: cut(v.Failure.Name, maxShort), Value: v.Failure.Value, Traceback: v.Failure.Traceback}
		t.shown += int64(len(v.Failure.Name) + len(v.Failure.Value) + len(v.Failure.Traceback))
		t.shows++
	case *agentpb.RunResponse_End:
		e.Kind = box.EventEnd
		e.End, err = cellEnd(v.End)
	default:
		err = lie("an event that is none")
	}
	if t.text -= int64(len(e.Text)); t.text < 0 {
		err = lie("more output than was asked for")
	}
	if t.shown > maxShown || t.shows > maxShows {
		err = lie("%d results and errors of %d bytes", t.shows, t.shown)
	}
	return e, err
}

// result reads a value's forms. Which there are is the program's choice.
func result(m *agentpb.Result) (*box.CellResult, error) {
	if len(m.Forms) == 0 || len(m.Forms) > maxForms {
		return nil, lie("a result in %d forms", len(m.Forms))
	}
	for name, value := range m.Forms {
		switch {
		case !box.IsMediaType(name):
			return nil, lie("the MIME type %q", cut(name, 100))
		case isJSON(name):
			if !json.Valid([]byte(value)) {
				return nil, lie("a result in %s that is not JSON", name)
			}
		case isBinary(name):
			if _, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(value))); err != nil {
				return nil, lie("a result in %s that is not base64", name)
			}
		}
	}
	return &box.CellResult{Forms: m.Forms, Main: m.Main}, nil
}

func isJSON(mime string) bool {
	base, _, _ := strings.Cut(mime, ";")
	return base == "application/json" || strings.HasSuffix(base, "+json")
}

// isBinary reports whether a form's value is in base64.
func isBinary(mime string) bool {
	base, _, _ := strings.Cut(mime, ";")
	switch kind, rest, _ := strings.Cut(base, "/"); kind {
	case "image", "audio", "video", "font":
		return !strings.HasSuffix(rest, "+xml")
	}
	return base == "application/pdf" || base == "application/octet-stream"
}

func cellEnd(m *agentpb.CellEnd) (*box.CellEnd, error) {
	e := &box.CellEnd{Count: int(m.Count), Duration: span(m.Millis, time.Millisecond), Detail: cut(m.Detail, maxWords)}
	if m.Count > 1<<31-1 {
		return nil, lie("%d cells", m.Count)
	}
	var err error
	if e.Dropped, err = count(m.DroppedBytes, "dropped output"); err != nil {
		return nil, err
	}
	switch m.Outcome {
	case agentpb.CellEnd_OUTCOME_OK:
		e.Outcome = box.CellOK
	case agentpb.CellEnd_OUTCOME_ERROR:
		e.Outcome = box.CellRaised
	case agentpb.CellEnd_OUTCOME_INTERRUPTED:
		e.Outcome = box.CellInterrupted
	case agentpb.CellEnd_OUTCOME_TIMEOUT:
		e.Outcome = box.CellTimeout
	case agentpb.CellEnd_OUTCOME_DIED:
		e.Outcome = box.CellDied
	default:
		return nil, lie("an unknown outcome (%d)", m.Outcome)
	}
	return e, nil
}
