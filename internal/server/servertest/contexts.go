package servertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// interpreter is one that lives. Its language has five kinds of lines: x=VALUE,
// the name of a variable, print TEXT, raise NAME, and loop.
type interpreter struct {
	mu    sync.Mutex // held while a cell runs
	state sync.Mutex
	known box.CodeContext
	vars  map[string]string
	cells map[string][]box.CellEvent
	stop  chan box.CellOutcome
}

func (i *interpreter) describe() box.CodeContext {
	i.state.Lock()
	defer i.state.Unlock()
	return i.known
}

// OpenContext implements box.Guest.
func (g *Guest) OpenContext(ctx context.Context, spec box.ContextSpec) (box.CodeContext, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return box.CodeContext{}, err
	}
	defer leave()
	i := &interpreter{vars: map[string]string{}, cells: map[string][]box.CellEvent{}, stop: make(chan box.CellOutcome, 1)}
	i.known = box.CodeContext{ID: fmt.Sprintf("cx%d", len(g.contexts)+1), Language: spec.Language, Kernel: "words 1", Dir: "/workspace", State: box.ContextIdle, Started: time.Now()}
	g.contexts = append(g.contexts, i)
	return i.known, nil
}

// Contexts implements box.Guest.
func (g *Guest) Contexts(ctx context.Context) ([]box.CodeContext, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var all []box.CodeContext
	for _, i := range g.contexts {
		all = append(all, i.describe())
	}
	return all, nil
}

func (g *Guest) context(ctx context.Context, id string) (*interpreter, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for _, i := range g.contexts {
		if i.known.ID == id {
			return i, nil
		}
	}
	return nil, box.Errorf(box.NotFound, "find context", "cannot find the context: it is not there")
}

// RunCell implements box.Guest.
func (g *Guest) RunCell(ctx context.Context, id string, cell box.Cell, fn func(box.CellEvent) error) error {
	i, err := g.context(ctx, id)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, again := i.cells[cell.ID]; !again {
		i.run(ctx, cell)
	}
	for _, ev := range i.cells[cell.ID] {
		if ev.Number < cell.From {
			continue
		}
		if err := fn(ev); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (i *interpreter) run(ctx context.Context, cell box.Cell) {
	i.state.Lock()
	i.known.Count++
	count := i.known.Count
	i.state.Unlock()
	add := func(ev box.CellEvent) {
		ev.Number = uint64(len(i.cells[cell.ID]) + 1)
		i.cells[cell.ID] = append(i.cells[cell.ID], ev)
	}
	end := box.CellEnd{Outcome: box.CellOK, Count: count}
	for line := range strings.SplitSeq(cell.Code, "\n") {
		name, value, sets := strings.Cut(line, "=")
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case sets:
			i.vars[name] = value
		case word == "print":
			add(box.CellEvent{Kind: box.EventStdout, Text: rest + "\n"})
		case word == "raise":
			add(box.CellEvent{Kind: box.EventError, Error: &box.CellError{Name: rest, Value: "raised", Traceback: "line 1"}})
			end.Outcome = box.CellRaised
		case word == "loop":
			end.Outcome = i.loop(ctx, cell)
		default:
			add(box.CellEvent{Kind: box.EventResult, Result: &box.CellResult{Forms: map[string]string{"text/plain": i.vars[line]}, Main: true}})
		}
	}
	add(box.CellEvent{Kind: box.EventEnd, End: &end})
}

func (i *interpreter) loop(ctx context.Context, cell box.Cell) box.CellOutcome {
	var late <-chan time.Time
	if cell.Timeout > 0 {
		late = time.After(cell.Timeout)
	}
	gone := ctx.Done()
	if !cell.Attached {
		gone = nil
	}
	select {
	case <-late:
		return box.CellTimeout
	case <-gone:
		return box.CellInterrupted
	case o := <-i.stop:
		return o
	}
}

// Interrupt implements box.Guest.
func (g *Guest) Interrupt(ctx context.Context, id string) error {
	i, err := g.context(ctx, id)
	if err != nil {
		return err
	}
	select {
	case i.stop <- box.CellInterrupted:
	default:
	}
	return nil
}

// RestartContext implements box.Guest.
func (g *Guest) RestartContext(ctx context.Context, id string) (box.CodeContext, error) {
	i, err := g.context(ctx, id)
	if err != nil {
		return box.CodeContext{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.vars = map[string]string{}
	i.state.Lock()
	defer i.state.Unlock()
	i.known.Count = 0
	return i.known, nil
}

// CloseContext implements box.Guest.
func (g *Guest) CloseContext(ctx context.Context, id string) error {
	i, err := g.context(ctx, id)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.contexts = slices.DeleteFunc(slices.Clone(g.contexts), func(j *interpreter) bool { return i == j })
	return nil
}
