package guest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// piece is how much of a file goes into one message, in bytes.
const piece = 64 << 10

// Read implements box.Guest. The reader fails, rather than end, when fewer bytes
// come than the entry promised: the file was cut meanwhile, or the agent lies.
func (g *Guest) Read(ctx context.Context, path string, offset, length int64) (box.Entry, io.ReadCloser, error) {
	const op = "read file"
	if err := asked(op, path); err != nil {
		return box.Entry{}, nil, err
	}
	if offset < 0 || length >= 0 && offset+length < 0 {
		return box.Entry{}, nil, refused(op, "the range is not one")
	}
	s, err := listen(ctx, g, op, g.files.Read, &agentpb.ReadRequest{Path: []byte(path), Offset: uint64(offset), Length: max(length, -1)})
	if err != nil {
		return box.Entry{}, nil, err
	}
	m, err := s.next()
	var e box.Entry
	switch {
	case errors.Is(err, io.EOF):
		err = s.failed(lie("nothing"))
	case err == nil:
		if e, err = entry(m.Entry, path); err == nil && e.Kind != box.KindFile {
			err = lie("a %s where only files are read", e.Kind)
		}
		if err != nil {
			err = s.failed(err)
		}
	}
	if err != nil {
		s.close()
		return box.Entry{}, nil, err
	}
	r := &reader{s: s, rest: m.Data, left: -1, due: max(e.Size-offset, 0)}
	if length >= 0 {
		r.left, r.due = length, min(r.due, length)
	}
	// An error of the first piece is one of the call: nothing was passed on yet.
	if err = r.took(m.Data); err == nil && len(m.Data) == 0 {
		if r.more(); r.err != io.EOF {
			err = r.err
		}
	}
	if err != nil {
		s.close()
		return box.Entry{}, nil, err
	}
	return e, r, nil
}

// reader is a file's bytes as they come. Close may be called during a Read.
type reader struct {
	s    *listener[agentpb.ReadResponse]
	once sync.Once
	rest []byte // come and not read
	left int64  // that may still come; -1 = any number
	due  int64  // that must still come
	err  error
}

// took accounts for a piece that came.
func (r *reader) took(p []byte) error {
	if r.left >= 0 {
		if int64(len(p)) > r.left {
			r.rest = nil
			r.err = r.s.failed(lie("more bytes than were asked for"))
			return r.err
		}
		r.left -= int64(len(p))
	}
	r.due -= int64(len(p))
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.more()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// more waits for the next piece, and keeps it or what came in its place.
func (r *reader) more() {
	m, err := r.s.next()
	switch {
	case errors.Is(err, io.EOF) && r.due > 0:
		r.err = box.Errorf(box.Conflict, r.s.op, "cannot %s: it became shorter meanwhile", r.s.op)
	case err != nil:
		r.err = err
	case len(m.Data) == 0 || m.Entry != nil:
		r.err = r.s.failed(lie("a piece of nothing"))
	default:
		r.rest = m.Data
		_ = r.took(m.Data)
	}
}

// Close ends the transfer.
func (r *reader) Close() error {
	r.once.Do(r.s.close)
	return nil
}

// sender is a stream of messages to the agent with one answer at its end.
type sender[Req, Res any] struct {
	g      *Guest
	op     string
	trip   *trip
	ctx    context.Context
	cancel context.CancelCauseFunc
	leave  func()
	stream *connect.ClientStreamForClient[Req, Res]
}

func send[Req, Res any](ctx context.Context, g *Guest, op string, open func(context.Context) *connect.ClientStreamForClient[Req, Res]) (*sender[Req, Res], error) {
	leave, err := g.enter(ctx, op, true)
	if err != nil {
		return nil, err
	}
	s := &sender[Req, Res]{g: g, op: op, leave: leave, trip: &trip{began: time.Now()}}
	s.ctx, s.cancel = context.WithCancelCause(context.WithValue(ctx, tripKey{}, s.trip))
	s.stream = open(s.ctx)
	return s, nil
}

// put sends a message. io.EOF means that the agent has answered already.
func (s *sender[Req, Res]) put(m *Req) error {
	s.trip.began = time.Now()
	clock := s.g.clock(s.cancel)
	defer clock.Stop()
	err := s.stream.Send(m)
	if err == nil || errors.Is(err, io.EOF) && s.ctx.Err() == nil {
		return err
	}
	return s.failed(err)
}

// finish ends the stream properly and returns the answer. An answer before the
// end (early) can only be an error.
func (s *sender[Req, Res]) finish(early bool) (*Res, error) {
	s.trip.began = time.Now()
	clock := time.AfterFunc(s.g.o.Call, func() { s.cancel(errSilent) })
	defer clock.Stop()
	res, err := s.stream.CloseAndReceive()
	switch {
	case err != nil:
		return nil, s.failed(err)
	case early:
		return nil, s.failed(lie("success before everything was sent"))
	}
	return res.Msg, nil
}

func (s *sender[Req, Res]) failed(err error) error {
	if context.Cause(s.ctx) == errSilent {
		s.g.link.doubt(s.trip)
	}
	if s.trip.parked(err) {
		return cutShort(s.op)
	}
	return failed(s.ctx, s.op, err)
}

// close cancels what was not finished: the agent hears of no end.
func (s *sender[Req, Res]) close() {
	s.cancel(nil)
	s.leave()
}

// pour sends all of r, a piece at a time, and finishes. An error of r ends the
// stream without an end, and is returned as it is.
func pour[Req, Res any](s *sender[Req, Res], head *Req, r io.Reader, wrap func([]byte) *Req) (*Res, error) {
	err := s.put(head)
	buf := make([]byte, piece)
	for err == nil {
		n, end := fill(r, buf)
		if n > 0 {
			err = s.put(wrap(buf[:n]))
		}
		switch {
		case err != nil:
		case end == io.EOF:
			return s.finish(false)
		case end != nil:
			return nil, end
		}
	}
	if errors.Is(err, io.EOF) {
		return s.finish(true)
	}
	return nil, err
}

// fill reads until p is full or r ends, and tells the end of r from an error
// that only looks like one: io.ErrUnexpectedEOF is an upload that was cut.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

// Write implements box.Guest.
func (g *Guest) Write(ctx context.Context, path string, o box.WriteOptions, r io.Reader) (box.Entry, error) {
	const op = "write file"
	if err := asked(op, path); err != nil {
		return box.Entry{}, err
	}
	s, err := send(ctx, g, op, g.files.Write)
	if err != nil {
		return box.Entry{}, err
	}
	defer s.close()
	head := &agentpb.WriteHead{Path: []byte(path), Mode: o.Mode, Parents: o.Parents, Exclusive: o.Exclusive, Attributes: o.Attributes, User: string(o.User)}
	res, err := pour(s, &agentpb.WriteRequest{Head: head}, r, func(p []byte) *agentpb.WriteRequest { return &agentpb.WriteRequest{Data: p} })
	if err != nil {
		return box.Entry{}, err
	}
	e, err := entry(res.Entry, path)
	if err == nil && e.Kind != box.KindFile {
		err = lie("a %s where a file was written", e.Kind)
	}
	if err != nil {
		return box.Entry{}, s.failed(err)
	}
	return e, nil
}

// Unpack implements box.Guest.
func (g *Guest) Unpack(ctx context.Context, path string, user box.User, r io.Reader) (files, bytes int64, err error) {
	const op = "unpack archive"
	if err := asked(op, path); err != nil {
		return 0, 0, err
	}
	s, err := send(ctx, g.patient(), op, g.files.Unpack)
	if err != nil {
		return 0, 0, err
	}
	defer s.close()
	res, err := pour(s, &agentpb.UnpackRequest{Path: []byte(path), User: string(user)}, r, func(p []byte) *agentpb.UnpackRequest { return &agentpb.UnpackRequest{Tar: p} })
	if err != nil {
		return 0, 0, err
	}
	if files, err = count(res.Files, "files"); err == nil {
		bytes, err = count(res.Bytes, "bytes")
	}
	if err != nil {
		return 0, 0, s.failed(err)
	}
	return files, bytes, nil
}
