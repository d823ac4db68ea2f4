package server

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Exchange is one request and its answer, for those who handle it.
type Exchange struct {
	ID     string     // names the request in the log and in X-Request-Id
	Caller box.Caller // empty where no key is wanted

	w     *answer
	body  *body    // nil if there is none
	conn  net.Conn // nil if it is not known
	mu    sync.Mutex
	cause error // a fault of ours
	gone  error // what ended as the client went away
}

// Keys of a context: that of an *Exchange, and that of the net.Conn below it.
type (
	exchangeKey struct{}
	connKey     struct{}
)

// Of returns the exchange that ctx belongs to; outside of one, an empty one.
func Of(ctx context.Context) *Exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*Exchange); ok {
		return x
	}
	return &Exchange{ID: "none"}
}

// CallerOf returns who asks.
func CallerOf(ctx context.Context) box.Caller { return Of(ctx).Caller }

func newExchange(w http.ResponseWriter, r *http.Request) *Exchange {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	return &Exchange{ID: rand.Text()[:16], w: &answer{ResponseWriter: w}, conn: conn}
}

// narrowBuffer is what the kernel is asked to buffer, in bytes; it takes twice as
// much (socket(7), SO_SNDBUF).
const narrowBuffer = 64 << 10

// Narrow bounds what is under way to the client in the kernel's buffer of this
// side. What a stream that is cut has sent and the client has not seen is lost
// with the connection, and has to be kept elsewhere until then.
func (x *Exchange) Narrow() {
	if tcp, ok := x.conn.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(narrowBuffer) // without it more may have to be told again
	}
}

// Times of a request's body.
const (
	// bodyTime is how long one may take whose handler has not said otherwise.
	bodyTime = 30 * time.Second
	// drainTime is how long net/http may wait for the rest of a body that nobody
	// wants, before it answers.
	drainTime = time.Second
)

// receive bounds the time for the request's body, if there is one.
func (x *Exchange) receive(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	x.body = &body{ReadCloser: r.Body}
	r.Body = x.body
	x.deadline(time.Now().Add(bodyTime))
}

// TakeTime is called when a handler has read the body and may take long from
// there on. It lifts the deadline for reading: if that stayed, net/http would
// take its end for that of the client. A body that was not read to its end gets
// a short one.
func (x *Exchange) TakeTime() {
	if x.body == nil || x.body.over.Load() {
		x.deadline(time.Time{})
		return
	}
	x.deadline(time.Now().Add(drainTime))
}

func (x *Exchange) deadline(t time.Time) {
	if x.w != nil {
		http.NewResponseController(x.w).SetReadDeadline(t) // not every connection has one
	}
}

// body notes whether it was read to its end.
type body struct {
	io.ReadCloser
	over atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.over.Store(true)
	}
	return n, err
}

func (x *Exchange) fault(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cause = errors.Join(x.cause, err)
}

func (x *Exchange) left(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone = errors.Join(x.gone, err)
}

func (x *Exchange) leaving() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.gone
}

func (x *Exchange) failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cause
}

// answerTime bounds how long a client may take to take an answer. Streams, which
// are longer, move it on.
const answerTime = 2 * time.Minute

// answer notes what is sent.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
		http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTime)) // not every connection has one
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(p)
}

// Hijack implements http.Hijacker, for tunnels.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil && a.status == 0 {
		a.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
