package contexts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/clock"
)

// session is one context: an interpreter, what waits for it, and what it did.
type session struct {
	id      string
	lang    *language
	start   Starter
	clock   *clock.Clock
	program Program // what all its lives have in common

	changing sync.Mutex // held while a life is made or ended

	mu      sync.Mutex
	life    *life
	served  chan struct{} // closed when the life's goroutine has ended
	kernel  string
	state   pb.Context_State
	detail  string
	count   uint64
	started time.Time
	current *cell
	queue   []*cell
	wake    chan struct{}
	record  record
	between between
	readers int
	closed  bool
	seed    string // to be given to the interpreter before its next cell, or empty
}

// errDir is wrapped by errors about a working folder.
var errDir = errors.New("cannot start in what is no folder")

// live starts an interpreter and returns when it is ready for cells.
func (s *session) live(ctx context.Context) error {
	if st, err := os.Stat(s.program.Dir); err != nil || !st.IsDir() {
		return fmt.Errorf("%w: %.200q", errDir, s.program.Dir)
	}
	s.mu.Lock()
	s.between = between{}
	s.mu.Unlock()
	l, err := begin(s.start, s.lang, s.clock, s.program, s.text)
	if err != nil {
		return err
	}
	kernel, err := ready(ctx, l)
	if err != nil {
		l.end("the context was given up before it was ready")
		for range drained(l) {
		}
		s.mu.Lock()
		said := strings.TrimSpace(valid(s.between.text[1]))
		s.mu.Unlock()
		if said != "" {
			err = fmt.Errorf("%w; it said: %s", err, said)
		}
		return err
	}
	l.settle() // what it says of itself is for nobody
	s.mu.Lock()
	defer s.mu.Unlock()
	s.between = between{}
	s.life, s.kernel, s.state, s.detail = l, kernel, pb.Context_STATE_IDLE, ""
	s.count, s.started, s.served, s.seed = 0, time.Now(), make(chan struct{}), ""
	go s.serve(l, s.served)
	return nil
}

// ready waits for the driver's first words.
func ready(ctx context.Context, l *life) (kernel string, err error) {
	t := time.NewTimer(readyWithin)
	defer t.Stop()
	select {
	case m := <-l.messages:
		if m.Op != "ready" {
			return "", fmt.Errorf("cannot use the interpreter: it begins with %s", m.Op)
		}
		return m.Kernel, nil
	case <-l.dead:
		return "", fmt.Errorf("cannot use the interpreter: %s", l.why())
	case <-t.C:
		return "", fmt.Errorf("cannot use the interpreter: it was not ready within %v", readyWithin)
	case <-ctx.Done():
		return "", fmt.Errorf("cannot wait for the interpreter: %w", ctx.Err())
	}
}

// drained takes and forgets what a life still says, until it is dead.
func drained(l *life) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-l.messages:
			case <-l.dead:
				return
			}
		}
	}()
	return done
}

// serve runs cells, one at a time, until the interpreter is dead.
func (s *session) serve(l *life, served chan struct{}) {
	defer close(served)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var w watch
	for {
		s.reseed(l)
		if c, n := s.next(); c != nil {
			r := &run{l: l, c: c, n: n, began: l.clock.Now()}
			end := r.follow()
			w = watch{ping: w.ping}
			if end.Outcome == pb.CellEnd_OUTCOME_DIED {
				s.died(l)
			}
			s.finish(c, end)
			if end.Outcome == pb.CellEnd_OUTCOME_DIED {
				return
			}
			continue
		}
		select {
		case <-s.wake:
		case m := <-l.messages:
			s.unasked(l, m, &w)
		case <-tick.C:
			w.idle(l)
		case <-l.dead:
			s.died(l)
			return
		}
	}
}

// unasked takes what a driver says while no cell runs.
func (s *session) unasked(l *life, m message, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Op == "pong":
		w.pong(m.N)
	case m.Op == "ready" || m.N > s.count:
		l.violated(fmt.Errorf("it tells of %s %d after cell %d", m.Op, m.N, s.count))
	default:
		s.between.dropped = min(s.between.dropped+m.size(), 1<<60)
	}
}

// next takes the next cell off the queue.
func (s *session) next() (*cell, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, 0
	}
	c := s.queue[0]
	s.queue = s.queue[1:]
	s.current, s.state = c, pb.Context_STATE_BUSY
	s.count++
	s.between.give(c.story)
	return c, s.count
}

// finish tells of a cell's end. Its state is the context's by then.
func (s *session) finish(c *cell, end *pb.CellEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c {
		s.current = nil
		if s.state == pb.Context_STATE_BUSY {
			s.state = pb.Context_STATE_IDLE
		}
	}
	c.story.end(end)
	c.code = ""
	s.record.trim()
}

// died marks the context dead, and with it the cells that wait.
func (s *session) died(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.detail = pb.Context_STATE_DEAD, l.why()
	for _, c := range s.queue {
		c.story.end(&pb.CellEnd{Outcome: pb.CellEnd_OUTCOME_DIED, Detail: "the cell was never run: " + s.detail})
	}
	s.queue = nil
}

// text takes what the interpreter prints.
func (s *session) text(stream int, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		s.current.story.write(stream, b)
		return
	}
	s.between.write(stream, b)
}

// submit takes a cell, or finds the one of that name.
func (s *session) submit(req *pb.RunRequest, limit int64) (*cell, *story, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.record.cells[req.Cell]; c != nil {
		if req.Attached {
			c.attached++
		}
		if c.story == nil {
			return nil, nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("cannot tell of cell %q: it was run, and its story is no longer kept", req.Cell))
		}
		return c, c.story, nil
	}
	switch {
	case s.closed:
		return nil, nil, notFound(s.id)
	case s.state == pb.Context_STATE_DEAD:
		return nil, nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cannot run a cell: the context is dead: %s; restart it", s.detail))
	case len(s.queue) >= MaxQueue:
		return nil, nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cannot queue a cell: %d wait already", MaxQueue))
	}
	c := &cell{id: req.Cell, code: req.Code, timeout: millis(req.TimeoutMillis), story: newStory(limit), ask: make(chan struct{}, 1)}
	if req.Attached {
		c.attached = 1
	}
	s.record.add(c)
	s.queue = append(s.queue, c)
	s.poke()
	return c, c.story, nil
}

// cancel interrupts a cell, or takes it off the queue.
func (s *session) cancel(c *cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c {
		c.interrupt()
		return
	}
	for i, q := range s.queue {
		if q == c {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			c.story.end(&pb.CellEnd{Outcome: pb.CellEnd_OUTCOME_INTERRUPTED, Detail: "the cell was never run: it waited for another when its caller went away"})
			return
		}
	}
}

// stop ends the interpreter and returns when everything of it is over.
func (s *session) stop(reason string) {
	s.mu.Lock()
	l, served := s.life, s.served
	s.mu.Unlock()
	if l != nil {
		l.end(reason)
		<-served
	}
}

// restart begins anew.
func (s *session) restart(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.stop("the context was restarted")
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return notFound(s.id)
	}
	err := s.live(ctx)
	if err != nil {
		s.mu.Lock()
		s.state, s.detail, s.life = pb.Context_STATE_DEAD, err.Error(), nil
		s.mu.Unlock()
	}
	return err
}

// close ends it for good.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.changing.Lock()
	defer s.changing.Unlock()
	s.stop("the context was closed")
}

// about is what is told of the context.
func (s *session) about() *pb.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.Context{Id: s.id, Language: s.lang.name, Kernel: s.kernel, Dir: s.program.Dir, State: s.state,
		Count: uint32(s.count), StartedUnixMillis: s.started.UnixMilli(), Detail: s.detail}
}
