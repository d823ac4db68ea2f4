package server

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Exchange is one request and its answer, for those who handle it.
type Exchange struct {
	ID     string     // names the request in the log and in X-Request-Id
	Caller box.Caller // empty where no key is wanted

	w     *answer
	mu    sync.Mutex
	cause error
}

// exchangeKey is the context's key of an *Exchange.
type exchangeKey struct{}

// Of returns the exchange that ctx belongs to; outside of one, an empty one.
func Of(ctx context.Context) *Exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*Exchange); ok {
		return x
	}
	return &Exchange{ID: "none"}
}

// CallerOf returns who asks.
func CallerOf(ctx context.Context) box.Caller { return Of(ctx).Caller }

func newExchange(w http.ResponseWriter) *Exchange {
	return &Exchange{ID: rand.Text()[:16], w: &answer{ResponseWriter: w}}
}

// TakeTime lifts the deadline for reading the request's body, which is read: if
// it stayed, net/http would take its end for that of the client.
func (x *Exchange) TakeTime() {
	if x.w != nil {
		http.NewResponseController(x.w).SetReadDeadline(time.Time{}) // not every connection has one
	}
}

func (x *Exchange) fault(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cause = errors.Join(x.cause, err)
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
