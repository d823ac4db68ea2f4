package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// Dial implements box.Guest. It returns when the box's port has accepted. The
// context bounds the dialling only; the connection ends by Close.
func (g *Guest) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	const op = "dial port"
	if port == 0 {
		return nil, refused(op, "there is no port 0")
	}
	leave, err := g.enter(ctx, op, false)
	if err != nil {
		return nil, err
	}
	c := &portConn{
		port: port, trip: &trip{began: time.Now()},
		in: make(chan []byte), inEnd: make(chan struct{}),
		out: make(chan []byte), outEnd: make(chan struct{}),
		readBy: newDeadline(), writeBy: newDeadline(),
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), tripKey{}, c.trip))
	context.AfterFunc(c.ctx, leave)
	clock := time.AfterFunc(g.o.Call, func() { c.cancel(errSilent) })
	defer clock.Stop()
	defer context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })()

	c.stream = g.machine.Dial(c.ctx)
	err = c.stream.Send(&agentpb.DialRequest{Port: uint32(port)})
	if err == nil || errors.Is(err, io.EOF) {
		var first *agentpb.DialResponse
		if first, err = c.stream.Receive(); err == nil && len(first.Data) > 0 {
			err = lie("data before the connection stood")
		} else if errors.Is(err, io.EOF) {
			err = lie("a connection that never stood")
		}
	}
	if err != nil {
		if context.Cause(c.ctx) == errSilent {
			g.link.doubt(c.trip)
		}
		err = failed(c.ctx, op, err)
		c.cancel(nil)
		return nil, err
	}
	go c.receive()
	go c.send()
	return c, nil
}

// portConn is a connection to a port of a box. Two goroutines move its bytes;
// each holds at most one message.
type portConn struct {
	port    uint16
	trip    *trip
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stream  *connect.BidiStreamForClient[agentpb.DialRequest, agentpb.DialResponse]
	in, out chan []byte
	inEnd   chan struct{} // closed when nothing more comes; inErr says why
	outEnd  chan struct{} // closed when nothing more can be sent
	inErr   error
	readMu  sync.Mutex
	rest    []byte // come and not read
	writeMu sync.Mutex
	noMore  bool // CloseWrite was called
	readBy  *deadline
	writeBy *deadline
}

func (c *portConn) receive() {
	defer close(c.inEnd)
	var beats beats
	for {
		m, err := c.stream.Receive()
		switch {
		case errors.Is(err, io.EOF):
			c.inErr = io.EOF
			return
		case err != nil:
			c.inErr = failed(c.ctx, "read from port", err)
			return
		case len(m.Data) == 0 && !beats.ok():
			c.inErr = failed(c.ctx, "read from port", lie("pieces of nothing without end"))
			c.cancel(nil)
			return
		case len(m.Data) == 0:
			continue
		}
		select {
		case c.in <- m.Data:
		case <-c.ctx.Done():
			c.inErr = net.ErrClosed
			return
		}
	}
}

func (c *portConn) send() {
	defer close(c.outEnd)
	for {
		var p []byte
		select {
		case p = <-c.out:
		case <-c.ctx.Done():
			return
		}
		m := &agentpb.DialRequest{Data: p, End: p == nil}
		if c.stream.Send(m) != nil {
			return
		}
		if m.End {
			c.stream.CloseRequest()
			return
		}
	}
}

func (c *portConn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if len(c.rest) == 0 {
		if c.readBy.passed() {
			return 0, c.error("read", os.ErrDeadlineExceeded)
		}
		select {
		case c.rest = <-c.in:
		case <-c.inEnd:
			if c.inErr == io.EOF {
				return 0, io.EOF
			}
			return 0, c.error("read", c.inErr)
		case <-c.ctx.Done():
			return 0, c.error("read", net.ErrClosed)
		case <-c.readBy.wait():
			return 0, c.error("read", os.ErrDeadlineExceeded)
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write hands pieces to the sender, one at a time. What it took counts as
// written, as with a socket's buffer; a later Write or the end tells if it was
// lost.
func (c *portConn) Write(p []byte) (n int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	for len(p) > 0 && err == nil {
		now := p[:min(len(p), piece)]
		if err = c.hand(append(make([]byte, 0, len(now)), now...)); err == nil {
			n, p = n+len(now), p[len(now):]
		}
	}
	return n, err
}

func (c *portConn) hand(p []byte) error {
	if c.noMore {
		return c.error("write", net.ErrClosed)
	}
	if c.writeBy.passed() {
		return c.error("write", os.ErrDeadlineExceeded)
	}
	select {
	case c.out <- p:
		return nil
	case <-c.outEnd:
		return c.error("write", io.ErrClosedPipe)
	case <-c.ctx.Done():
		return c.error("write", net.ErrClosed)
	case <-c.writeBy.wait():
		return c.error("write", os.ErrDeadlineExceeded)
	}
}

// CloseWrite tells the port that nothing more comes; reading goes on.
func (c *portConn) CloseWrite() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	err := c.hand(nil)
	c.noMore = true
	return err
}

// Close ends the connection.
func (c *portConn) Close() error {
	c.cancel(net.ErrClosed)
	return nil
}

func (c *portConn) error(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: c.RemoteAddr(), Err: err}
}

// LocalAddr is the agent: whoever accepted sees a local caller.
func (c *portConn) LocalAddr() net.Addr { return boxAddr("agent") }

// RemoteAddr is the port, in the box.
func (c *portConn) RemoteAddr() net.Addr {
	return boxAddr("127.0.0.1:" + strconv.Itoa(int(c.port)))
}

func (c *portConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *portConn) SetReadDeadline(t time.Time) error {
	c.readBy.set(t)
	return nil
}

func (c *portConn) SetWriteDeadline(t time.Time) error {
	c.writeBy.set(t)
	return nil
}

// boxAddr is an address inside a box.
type boxAddr string

func (boxAddr) Network() string  { return "box" }
func (a boxAddr) String() string { return string(a) }
