package guest

import (
	"context"
	"errors"
	"io"
	"time"

	"connectrpc.com/connect"
)

// listener is a stream of messages from the agent, with a clock that ends it
// when nothing comes. The clock stands still while we do not wait.
type listener[Res any] struct {
	g      *Guest
	op     string
	trip   *trip
	ctx    context.Context
	cancel context.CancelCauseFunc
	clock  *time.Timer
	leave  func()
	stream *connect.ServerStreamForClient[Res]
}

// opener is a method of one of the clients that answers with a stream.
type opener[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error)

// listen opens a stream that cannot be resumed. It is to be closed.
func listen[Req, Res any](ctx context.Context, g *Guest, op string, open opener[Req, Res], req *Req) (*listener[Res], error) {
	leave, err := g.enter(ctx, op, true)
	if err != nil {
		return nil, err
	}
	return hear(ctx, g, op, open, req, leave)
}

// hear opens a stream for who has entered.
func hear[Req, Res any](ctx context.Context, g *Guest, op string, open opener[Req, Res], req *Req, leave func()) (*listener[Res], error) {
	s := &listener[Res]{g: g, op: op, leave: leave, trip: &trip{began: time.Now()}}
	s.ctx, s.cancel = context.WithCancelCause(context.WithValue(ctx, tripKey{}, s.trip))
	s.clock = g.clock(s.cancel)
	var err error
	s.stream, err = open(s.ctx, connect.NewRequest(req))
	s.clock.Stop()
	if err != nil {
		err = s.failed(err)
		s.close()
		return nil, err
	}
	return s, nil
}

// clock ends a stream after a silence. It runs at once.
func (g *Guest) clock(cancel context.CancelCauseFunc) *time.Timer {
	return time.AfterFunc(g.o.Silence, func() { cancel(errSilent) })
}

// next waits for a message; io.EOF is the stream's proper end.
func (s *listener[Res]) next() (*Res, error) {
	s.trip.began = time.Now()
	s.clock.Reset(s.g.o.Silence)
	more := s.stream.Receive()
	s.clock.Stop()
	if more {
		return s.stream.Msg(), nil
	}
	if err := s.stream.Err(); err != nil {
		return nil, s.failed(err)
	}
	return nil, io.EOF
}

func (s *listener[Res]) failed(err error) error {
	if context.Cause(s.ctx) == errSilent {
		s.g.link.doubt(s.trip)
	}
	if s.trip.parked(err) {
		return cutShort(s.op)
	}
	return failed(s.ctx, s.op, err)
}

// close ends the stream, at once. If the connection takes what we say, the agent
// is told before close returns: whoever follows again comes after that.
func (s *listener[Res]) close() {
	s.clock.Stop()
	if s.stream != nil {
		slow := time.AfterFunc(time.Second, func() { s.cancel(nil) })
		s.stream.Close()
		slow.Stop()
	}
	s.cancel(nil)
	s.leave()
}

// beats bounds how many beats are taken for signs of life: one a second.
type beats struct {
	n     int
	since time.Time
}

func (b *beats) ok() bool {
	if b.n == 0 {
		b.since = time.Now()
	}
	b.n++
	return b.n <= 30+int(time.Since(b.since)/time.Second)
}

// passOn tells a story to fn, event by event, as read makes them of messages.
// The last event is passed on only when the stream has ended after it: a story
// without an end, or with more after it, is a lie.
func passOn[Res, Event any](s *listener[Res], read func(*Res) (Event, error), ends func(Event) bool, fn func(Event) error) error {
	var last *Event
	for {
		m, err := s.next()
		switch {
		case errors.Is(err, io.EOF) && last != nil:
			return fn(*last)
		case errors.Is(err, io.EOF):
			return s.failed(lie("a story without an end"))
		case last != nil && errors.Is(err, errParked):
			return fn(*last)
		case err != nil:
			return err
		case last != nil:
			return s.failed(lie("more after the end"))
		}
		e, err := read(m)
		switch {
		case err != nil:
			return s.failed(err)
		case ends(e):
			last = &e
		default:
			if err := fn(e); err != nil {
				return err
			}
		}
	}
}
