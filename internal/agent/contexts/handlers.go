package contexts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// handlers answer the calls of agent.proto.
type handlers struct{ *Service }

// Open starts an interpreter and returns when it is ready.
func (s handlers) Open(ctx context.Context, req *connect.Request[pb.OpenRequest]) (*connect.Response[pb.OpenResponse], error) {
	lang := languageOf(req.Msg.Language)
	if lang == nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cannot open a context: no language %.50q; there are python, javascript and bash", req.Msg.Language))
	}
	if err := s.reserve(); err != nil {
		return nil, err
	}
	dir := req.Msg.Dir
	if dir == "" {
		dir = s.config.Dir
	}
	c := &session{id: "cx" + strings.ToLower(rand.Text()[:16]), lang: lang, start: s.config.Start, clock: s.config.Clock, wake: make(chan struct{}, 1),
		program: Program{Env: environment(s.config.Env, req.Msg.Env), Dir: dir, User: req.Msg.User}}
	err := c.live(ctx)
	s.mu.Lock()
	s.opening--
	closed := s.closed
	if err == nil && !closed {
		s.sessions[c.id] = c
	}
	s.mu.Unlock()
	if err != nil {
		return nil, cannotOpen(lang, err)
	}
	if closed {
		c.close()
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("cannot open a context: the agent is ending"))
	}
	return connect.NewResponse(&pb.OpenResponse{Context: c.about()}), nil
}

// List tells of all contexts, the oldest first.
func (s handlers) List(context.Context, *connect.Request[pb.ListContextsRequest]) (*connect.Response[pb.ListContextsResponse], error) {
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for _, c := range s.sessions {
		all = append(all, c)
	}
	s.mu.Unlock()
	out := &pb.ListContextsResponse{}
	for _, c := range all {
		out.Contexts = append(out.Contexts, c.about())
	}
	sort.Slice(out.Contexts, func(i, j int) bool {
		a, b := out.Contexts[i], out.Contexts[j]
		if a.StartedUnixMillis != b.StartedUnixMillis {
			return a.StartedUnixMillis < b.StartedUnixMillis
		}
		return a.Id < b.Id
	})
	return connect.NewResponse(out), nil
}

// Restart ends the interpreter and starts another. What ran has died.
func (s handlers) Restart(ctx context.Context, req *connect.Request[pb.RestartRequest]) (*connect.Response[pb.RestartResponse], error) {
	c, err := s.find(req.Msg.Context)
	if err != nil {
		return nil, err
	}
	if err := c.restart(ctx); err != nil {
		if connect.CodeOf(err) == connect.CodeNotFound {
			return nil, err
		}
		return nil, cannotOpen(c.lang, err)
	}
	return connect.NewResponse(&pb.RestartResponse{Context: c.about()}), nil
}

// Interrupt interrupts the cell that runs. If none does, there is nothing to do.
func (s handlers) Interrupt(_ context.Context, req *connect.Request[pb.InterruptRequest]) (*connect.Response[pb.InterruptResponse], error) {
	c, err := s.find(req.Msg.Context)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == pb.Context_STATE_DEAD {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cannot interrupt: the context is dead: %s", c.detail))
	}
	if c.current != nil {
		c.current.interrupt()
	}
	return connect.NewResponse(&pb.InterruptResponse{}), nil
}

// Close ends a context and forgets it. What ran has died.
func (s handlers) Close(_ context.Context, req *connect.Request[pb.CloseRequest]) (*connect.Response[pb.CloseResponse], error) {
	c, err := s.find(req.Msg.Context)
	if err != nil {
		return nil, err
	}
	c.close()
	s.mu.Lock()
	delete(s.sessions, c.id)
	s.mu.Unlock()
	return connect.NewResponse(&pb.CloseResponse{}), nil
}

// Run runs a cell, or finds one, and tells its story until its end.
func (s handlers) Run(ctx context.Context, req *connect.Request[pb.RunRequest], stream *connect.ServerStream[pb.RunResponse]) error {
	c, err := s.find(req.Msg.Context)
	if err != nil {
		return err
	}
	limit, err := c.check(req.Msg)
	if err != nil {
		return err
	}
	if err := c.attach(); err != nil {
		return err
	}
	defer c.leave()
	cell, story, err := c.submit(req.Msg, limit)
	if err != nil {
		return err
	}
	err = tell(ctx, story, max(req.Msg.From, 1), stream.Send)
	if err != nil && req.Msg.Attached {
		c.abandon(cell)
	}
	return err
}

// check says what is wrong with a request, or the bound of the cell's text.
func (c *session) check(req *pb.RunRequest) (limit int64, err error) {
	why := c.lang.check(req.Code)
	switch {
	case req.Cell == "" || len(req.Cell) > maxCellName:
		why = fmt.Sprintf("a cell's name has 1 to %d bytes", maxCellName)
	case req.OutputBytes > MaxOutput:
		why = fmt.Sprintf("the bound of its text is at most %d bytes", MaxOutput)
	}
	if why != "" {
		return 0, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cannot run the cell: %s", why))
	}
	if req.OutputBytes == 0 {
		return MaxOutput, nil
	}
	return int64(req.OutputBytes), nil
}

// attach counts one reader more.
func (c *session) attach() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readers == MaxReaders {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cannot follow the cell: %d do already", MaxReaders))
	}
	c.readers++
	return nil
}

func (c *session) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers--
}

// tell sends a story from event n on, with a beat when there is nothing new.
func tell(ctx context.Context, s *story, n uint64, send func(*pb.RunResponse) error) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		events, over, changed := s.since(n)
		for _, e := range events {
			if err := send(e); err != nil {
				return err
			}
			n = e.Number + 1
		}
		if over && len(events) == 0 {
			return connect.NewError(connect.CodeOutOfRange, fmt.Errorf("cannot tell the cell's story from event %d on: it has ended before", n))
		}
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-beat.C:
			if err := send(&pb.RunResponse{Event: &pb.RunResponse_Beat{Beat: &pb.Beat{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
