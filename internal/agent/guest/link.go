package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
)

// protocol is the version that both ends speak.
const protocol = 1

// window is what the agent may send on a stream before we have read it, in
// bytes (RFC 9113 5.2).
const window = 256 << 10

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 32 << 10

var (
	errClosed = errors.New("reach agent: the box is gone")
	errLimit  = errors.New("reach agent: it lets no more calls in")
)

// link is the one HTTP/2 connection to an agent, in clear text and with prior
// knowledge. It is made when a call needs it and there is none that works.
type link struct {
	dial  func(context.Context) (net.Conn, error)
	o     Options
	turn  chan struct{} // held by who looks at or changes now
	now   atomic.Pointer[conn]
	ended chan struct{}
	once  sync.Once
	gate  gate
}

// conn is a connection on which the agent has said Hello.
type conn struct {
	http *http.ClientConn
	wire *wire
	dir  string // the box's working folder
	// parked is set before the connection is closed for a copy of the box.
	parked atomic.Bool
}

// trip is what one call leaves behind: the connection that it took.
type trip struct {
	began time.Time
	conn  atomic.Pointer[conn]
}

type tripKey struct{}

func newLink(dial func(context.Context) (net.Conn, error), o Options) *link {
	l := &link{dial: dial, o: o, turn: make(chan struct{}, 1), ended: make(chan struct{})}
	l.turn <- struct{}{}
	return l
}

func (l *link) close() {
	l.once.Do(func() { close(l.ended) })
	if c := l.now.Load(); c != nil {
		c.http.Close()
	}
}

// Do implements connect.HTTPClient.
func (l *link) Do(r *http.Request) (*http.Response, error) {
	c, err := l.current(r.Context())
	if err != nil {
		return nil, err
	}
	if t, ok := r.Context().Value(tripKey{}).(*trip); ok {
		t.conn.Store(c)
	}
	return c.do(r)
}

// do sends a request. When its context ends, the agent is told so by a reset of
// the stream: net/http alone would go on waiting for the next byte of a body,
// and then take the end of the body for the end of the request, which makes a
// half-written file a whole one.
func (c *conn) do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		b := &body{ReadCloser: r.Body, ctx: r.Context(), wire: c.wire}
		b.stop = context.AfterFunc(b.ctx, func() { b.ReadCloser.Close() })
		r.Body = b
	}
	res, err := c.http.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	c.wire.allow(callBytes)
	// Nor does it wake who waits for the agent to take more.
	a := &answer{ReadCloser: res.Body, wire: c.wire}
	a.stop = context.AfterFunc(r.Context(), func() { a.ReadCloser.Close() })
	res.Body = a
	return res, nil
}

// current returns a connection that works, and makes one if need be.
func (l *link) current(ctx context.Context) (*conn, error) {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-l.ended:
		return nil, errClosed
	default:
	}
	if past, _ := ctx.Value(pastKey{}).(bool); !past && l.gate.isShut() {
		return nil, errParked // it had passed the gate before that was shut
	}
	if c := l.now.Load(); c != nil && c.http.Err() == nil {
		switch {
		case c.http.Available() > 0:
			return c, nil
		case c.http.InFlight() > 0:
			return nil, errLimit
		}
		c.http.Close() // it takes nothing more (GOAWAY)
	}
	c, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	l.now.Store(c)
	select {
	case <-l.ended: // while we dialled
		c.http.Close()
		return nil, errClosed
	default:
	}
	return c, nil
}

// connect dials and says Hello.
func (l *link) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.o.Call, errSilent)
	defer cancel()
	c := &conn{}
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		Protocols: only,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			raw, err := l.dial(ctx)
			if err != nil {
				return nil, err
			}
			c.wire = newWire(raw)
			return c.wire, nil
		},
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: window,
			WriteByteTimeout:          l.o.Silence,
		},
	}
	var err error
	if c.http, err = t.NewClientConn(ctx, "http", "agent:80"); err != nil {
		if c.wire != nil {
			c.wire.Close()
		}
		return nil, err
	}
	hello := agentpbconnect.NewMachineClient(doer(c.do), baseURL, clientOptions(maxMessage)...)
	res, err := hello.Hello(ctx, connect.NewRequest(&agentpb.HelloRequest{}))
	if err == nil {
		err = checkHello(res.Msg)
	}
	if err != nil {
		c.http.Close()
		return nil, err
	}
	c.dir = res.Msg.Dir
	return c, nil
}

func checkHello(m *agentpb.HelloResponse) error {
	if m.Protocol != protocol {
		return box.Errorf(box.Unsupported, "reach agent", "cannot reach the box's agent: it speaks protocol %d, not %d", m.Protocol, protocol).
			WithHint("the box was made by another version of Sunaba: make a new one")
	}
	return checkPath(m.Dir)
}

// doubt is called when an agent did not answer a call in time. If no byte at all
// came meanwhile, the connection is given up, so that the next call finds out
// whether a new one works.
func (l *link) doubt(t *trip) {
	if c := t.conn.Load(); c != nil && c.wire.lastRead().Before(t.began) {
		c.http.Close()
	}
}

// broke reports whether the call failed because its connection did.
func (t *trip) broke() bool {
	c := t.conn.Load()
	return c != nil && c.http.Err() != nil
}

// doer is a function as a connect.HTTPClient.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// body is a request's body, which has no end but that which its sender gave it.
type body struct {
	io.ReadCloser
	ctx  context.Context
	wire *wire
	stop func() bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.wire.allow(n)
	if err != nil && b.ctx.Err() != nil {
		return n, b.ctx.Err()
	}
	return n, err
}

func (b *body) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}

// answer is a response's body.
type answer struct {
	io.ReadCloser
	wire *wire
	stop func() bool
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.wire.allow(n)
	return n, err
}

func (a *answer) Close() error {
	a.stop()
	return a.ReadCloser.Close()
}
