// Package contexts is the agent's service for code that is run piece by piece:
// interpreters that live in the box, so that what one cell defines the next one
// sees.
//
// Each context is one process, python3, node or bash, with a small driver inside
// that takes cells over a descriptor and tells of values, errors and ends over
// another. Text is read from the process's own stdout and stderr, so that what
// its children and C code print counts as well. The driver shares its process
// with the code that it runs, so nothing that it says is believed beyond its
// form: sizes and numbers are bounded here, and one that breaks the protocol
// costs its own context and no more.
//
// A cell's story is bounded and kept whole, so a reader of any speed, or one who
// comes back, gets all of it, and the interpreter never waits for a reader. An
// end is only told when it was seen: by the driver's word for a cell, by wait(2)
// for the interpreter.
package contexts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/clock"
)

// Bounds.
const (
	MaxContexts = 32
	MaxQueue    = 16      // cells that wait in a context
	MaxReaders  = 64      // streams that follow a context's cells
	MaxCode     = 1 << 20 // bytes of a cell's code
	MaxOutput   = 1 << 20 // bytes of a cell's text; also the default

	maxCellName = 128      // bytes
	keptCells   = 8        // whose story can be told again
	keptBytes   = 2 << 20  // of these stories, the last one aside
	maxKnown    = 256      // cells that are known to have been run
	maxBetween  = 64 << 10 // bytes that are printed between two cells

	readyWithin = 60 * time.Second
	beatEvery   = 5 * time.Second
)

// Config is what the service needs of the agent.
type Config struct {
	// Start starts interpreters as the agent's children; nil is [Exec].
	Start Starter
	// Dir is the working folder of contexts that name none.
	Dir string
	// Env is the environment of contexts; what a request names goes before it.
	Env []string
	// Clock is the time of cells; nil is one of its own.
	Clock *clock.Clock
}

// Service implements the service Contexts of agent.proto.
type Service struct {
	config Config

	mu       sync.Mutex
	sessions map[string]*session
	opening  int
	closed   bool
}

// New makes a service without contexts. It costs next to nothing until one is
// opened.
func New(c Config) *Service {
	if c.Start == nil {
		c.Start = Exec
	}
	if c.Clock == nil {
		c.Clock = clock.New()
	}
	return &Service{config: c, sessions: map[string]*session{}}
}

// Handler returns the path that it serves, and what serves it.
func (s *Service) Handler() (string, http.Handler) {
	return agentpbconnect.NewContextsHandler(handlers{s}, connect.WithReadMaxBytes(MaxCode+64<<10),
		connect.WithCompression("gzip", nil, nil)) // the other end is on this machine
}

// Close ends all contexts and refuses new ones.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.sessions
	s.sessions = map[string]*session{}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(c.close)
	}
	wg.Wait()
}

// reserve takes one of the places for contexts.
func (s *Service) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return connect.NewError(connect.CodeUnavailable, errors.New("cannot open a context: the agent is ending"))
	}
	if len(s.sessions)+s.opening >= MaxContexts {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cannot open a context: there are %d already; close one", MaxContexts))
	}
	s.opening++
	return nil
}

// cannotOpen says why there is no interpreter.
func cannotOpen(lang *language, err error) error {
	code := connect.CodeFailedPrecondition
	switch {
	case errors.Is(err, errDir):
		code = connect.CodeInvalidArgument
	case errors.Is(err, fs.ErrNotExist):
		code = connect.CodeUnimplemented
	case errors.Is(err, fs.ErrPermission):
		code = connect.CodePermissionDenied
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	}
	return connect.NewError(code, fmt.Errorf("cannot open a context for %s: %w", lang.name, err))
}

// environment is base with what is asked for in its place.
func environment(base, asked []string) []string {
	set := map[string]bool{}
	for _, e := range asked {
		name, _, _ := strings.Cut(e, "=")
		set[name] = true
	}
	out := append([]string{}, asked...)
	for _, e := range base {
		if name, _, _ := strings.Cut(e, "="); !set[name] {
			out = append(out, e)
		}
	}
	return out
}

// find returns a context.
func (s *Service) find(id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.sessions[id]; c != nil {
		return c, nil
	}
	return nil, notFound(id)
}

func notFound(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("cannot find context %.50q", id))
}

func millis(n uint64) time.Duration {
	return time.Duration(min(n, 1<<40)) * time.Millisecond // 34 years are none
}
