package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

type contextJSON struct {
	ID       string           `json:"id"`
	Language string           `json:"language"`
	Kernel   string           `json:"kernel"`
	Dir      string           `json:"dir"`
	State    box.ContextState `json:"state"`
	Count    int              `json:"execution_count"`
	Started  time.Time        `json:"started_at"`
	Detail   string           `json:"detail"`
}

func (g *Guest) context(id, rest string) string { return g.path("/contexts/", segment(id), rest) }

// OpenContext implements box.Contexts.
func (g *Guest) OpenContext(ctx context.Context, s box.ContextSpec) (box.CodeContext, error) {
	env, err := environment(s.Env)
	if err != nil {
		return box.CodeContext{}, err
	}
	in := map[string]any{"language": s.Language}
	if env != nil {
		in["env"] = env
	}
	if s.Dir != "" {
		in["dir"] = s.Dir
	}
	if s.User != "" {
		in["user"] = s.User
	}
	var c contextJSON
	err = g.c.do(ctx, call{method: http.MethodPost, path: g.path("/contexts"), in: in}, &c)
	return box.CodeContext(c), err
}

// Contexts implements box.Contexts.
func (g *Guest) Contexts(ctx context.Context) ([]box.CodeContext, error) {
	var out []box.CodeContext
	err := pages(ctx, g.c, g.path("/contexts"), url.Values{}, func(page struct {
		Contexts []contextJSON `json:"contexts"`
		next
	}) error {
		for _, c := range page.Contexts {
			out = append(out, box.CodeContext(c))
		}
		return nil
	})
	return out, err
}

// RunCell implements box.Contexts. A connection that breaks is made anew: the
// cell's id finds it.
func (g *Guest) RunCell(ctx context.Context, id string, cell box.Cell, fn func(box.CellEvent) error) error {
	in := map[string]any{"code": cell.Code, "id": cell.ID, "timeout_sec": cell.Timeout.Seconds(), "detached": !cell.Attached}
	if cell.Output > 0 {
		in["max_output"] = cell.Output
	}
	ask := func(last string) call {
		q := call{method: http.MethodPost, path: g.context(id, "/run"), in: in}
		if last == "" && cell.From > 1 {
			last = strconv.FormatUint(cell.From-1, 10)
		}
		if last != "" {
			q.header = map[string]string{"Last-Event-ID": last}
		}
		return q
	}
	return g.c.listen(ctx, cell.ID != "", ask, func(e event) error { return tellCell(e, fn) })
}

// tellCell translates one event of a cell.
func tellCell(e event, fn func(box.CellEvent) error) error {
	ev := box.CellEvent{Kind: box.EventKind(e.name)}
	if e.id != "" {
		var err error
		if ev.Number, err = strconv.ParseUint(e.id, 10, 64); err != nil {
			return wrong("an event has the number %q", e.id)
		}
	}
	var err error
	switch e.name {
	case "stdout", "stderr":
		var text struct {
			Text string `json:"text"`
		}
		err = understand(e.data, &text)
		ev.Text = text.Text
	case "result":
		var r struct {
			Forms map[string]string `json:"forms"`
			Main  bool              `json:"main"`
		}
		err = understand(e.data, &r)
		ev.Result = &box.CellResult{Forms: r.Forms, Main: r.Main}
	case "raised":
		var r struct {
			Name      string `json:"name"`
			Value     string `json:"value"`
			Traceback string `json:"traceback"`
		}
		err = understand(e.data, &r)
		ev.Kind, ev.Error = box.EventError, &box.CellError{Name: r.Name, Value: r.Value, Traceback: r.Traceback}
	case "end":
		var r struct {
			Outcome  box.CellOutcome `json:"outcome"`
			Count    int             `json:"execution_count"`
			Duration float64         `json:"duration_sec"`
			Dropped  int64           `json:"dropped_bytes"`
			Message  string          `json:"message"`
		}
		err = understand(e.data, &r)
		ev.End = &box.CellEnd{Outcome: r.Outcome, Count: r.Count, Duration: seconds(r.Duration), Dropped: r.Dropped, Detail: r.Message}
		if err == nil && r.Outcome == "" {
			err = wrong("a cell ended without an outcome")
		}
	case "beat":
	default:
		return nil // start, and those of a later version
	}
	if err == nil {
		err = fn(ev)
	}
	if err == nil && e.name == "end" {
		err = errDone
	}
	return err
}

// Interrupt implements box.Contexts.
func (g *Guest) Interrupt(ctx context.Context, id string) error {
	return g.c.do(ctx, call{method: http.MethodPost, path: g.context(id, "/interrupt")}, nil)
}

// RestartContext implements box.Contexts.
func (g *Guest) RestartContext(ctx context.Context, id string) (box.CodeContext, error) {
	var c contextJSON
	err := g.c.do(ctx, call{method: http.MethodPost, path: g.context(id, "/restart")}, &c)
	return box.CodeContext(c), err
}

// CloseContext implements box.Contexts.
func (g *Guest) CloseContext(ctx context.Context, id string) error {
	return g.c.do(ctx, call{method: http.MethodDelete, path: g.context(id, "")}, nil)
}
