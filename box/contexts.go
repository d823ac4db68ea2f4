package box

import (
	"context"
	"time"
)

// Contexts are interpreters that live: what one cell defines, the next one sees.
type Contexts interface {
	OpenContext(context.Context, ContextSpec) (CodeContext, error)
	Contexts(context.Context) ([]CodeContext, error)
	// RunCell runs code and passes on its story until its end. If the cell's id
	// was run before, nothing is run again: its story is told from event
	// cell.From on, as far as it is kept. When ctx ends the cell goes on, unless
	// cell.Attached is set: then it is interrupted.
	RunCell(ctx context.Context, id string, cell Cell, fn func(CellEvent) error) error
	// Interrupt interrupts what runs; the variables stay.
	Interrupt(ctx context.Context, id string) error
	// RestartContext begins anew with no variables.
	RestartContext(ctx context.Context, id string) (CodeContext, error)
	CloseContext(ctx context.Context, id string) error
}

// ContextSpec says what interpreter to start.
type ContextSpec struct {
	Language string // python, javascript or bash
	Dir      string // empty = the box's working folder
	Env      []string
	User     User
}

// CodeContext is what is known of one.
type CodeContext struct {
	ID       string
	Language string
	Kernel   string // what runs the code: "ipython 8.5.0", "python 3.11.2", "node 18.19.0", "bash 5.2.15"
	Dir      string
	State    ContextState
	Count    int // cells run since the start or the last restart
	Started  time.Time
	Detail   string // why it is dead
}

// ContextState is where a context is in its life.
type ContextState string

// States. A dead context answers every cell with that until it is restarted.
const (
	ContextIdle ContextState = "idle"
	ContextBusy ContextState = "busy"
	ContextDead ContextState = "dead"
)

// Cell is one piece of code.
type Cell struct {
	ID       string // the caller's name for it, unique in the context
	Code     string
	Timeout  time.Duration // 0 = none; at its end the code is interrupted and the variables stay
	From     uint64        // number of the first event wanted
	Attached bool          // a caller that goes away interrupts it
	// Output bounds the text of stdout and stderr together, in bytes: what is
	// more is counted and dropped. 0 = [DefaultCellOutput].
	Output int64
}

// DefaultCellOutput is the bound of a cell's text, in bytes.
const DefaultCellOutput = 1 << 20

// CellEvent is one piece of a cell's story. Events of a cell are numbered from
// 1 on without gaps.
type CellEvent struct {
	Number uint64
	Kind   EventKind // stdout, stderr, result, error, end or beat (which has no number)
	Text   string    // of stdout and stderr
	Result *CellResult
	Error  *CellError
	End    *CellEnd
}

// CellResult is one value in every form that the interpreter offers. Text forms
// are text, binary ones (image/png) base64, application/json is JSON.
type CellResult struct {
	Forms map[string]string // by MIME type
	Main  bool              // the value of the cell's last expression, not something shown on the way
}

// CellError is what the code raised.
type CellError struct {
	Name, Value string
	Traceback   string
}

// CellEnd is how a cell ended. It is told only when that was observed.
type CellEnd struct {
	Outcome  CellOutcome
	Count    int // execution count
	Duration time.Duration
	Dropped  int64  // bytes of text that were over Cell.Output
	Detail   string // for died
}

// CellOutcome says how a cell ended.
type CellOutcome string

// Outcomes.
const (
	CellOK          CellOutcome = "ok"
	CellRaised      CellOutcome = "error"       // see the error event
	CellInterrupted CellOutcome = "interrupted" // by a caller
	CellTimeout     CellOutcome = "timeout"     // Cell.Timeout
	CellDied        CellOutcome = "died"        // the interpreter ended, or had to be ended; variables are lost
)
