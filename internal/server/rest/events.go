package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/internal/server"
)

// events writes server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html). It holds one
// event at most: whoever sends waits until the client has taken what was sent
// before. It is safe for concurrent use.
type events struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	stall time.Duration
	ctx   context.Context // of the request
	stop  func() bool     // of the watch over it
	done  chan struct{}
	wg    sync.WaitGroup

	mu    sync.Mutex
	begun bool
	last  time.Time
	err   error
	buf   bytes.Buffer
}

// Times of a stream of events.
const (
	// headTime is how long an error may still become a status instead of an event.
	headTime = 250 * time.Millisecond
	// quietTime is how long a stream says nothing at most, so that nothing on the
	// way takes it for dead.
	quietTime = 10 * time.Second
)

// open makes a stream. Nothing is written until there is an event, or a quarter
// of a second has passed. It is to be closed.
func (a *API) open(w http.ResponseWriter, r *http.Request) *events {
	e := &events{w: w, ctl: http.NewResponseController(w), stall: a.Stall, ctx: r.Context(), done: make(chan struct{}), last: time.Now()}
	server.Of(r.Context()).Narrow()
	// A write that waits for a client that is gone does not wait on.
	e.stop = context.AfterFunc(r.Context(), func() { e.ctl.SetWriteDeadline(time.Now()) })
	e.wg.Go(e.keepAlive)
	return e
}

func (e *events) keepAlive() {
	wait := time.NewTimer(headTime)
	defer wait.Stop()
	for {
		select {
		case <-e.done:
			return
		case <-wait.C:
		}
		e.mu.Lock()
		if !e.begun || time.Since(e.last) >= quietTime {
			e.begin()
			e.write([]byte(": all is well\n\n"))
		}
		e.mu.Unlock()
		wait.Reset(quietTime / 2)
	}
}

func (e *events) begin() {
	if e.begun {
		return
	}
	e.begun = true
	e.w.Header().Set("Content-Type", "text/event-stream")
	e.w.Header().Set("X-Accel-Buffering", "no") // for nginx
	e.w.WriteHeader(http.StatusOK)
}

// write sends p and flushes. The deadline is for all of p, which is small.
func (e *events) write(p []byte) {
	if e.err != nil {
		return
	}
	e.ctl.SetWriteDeadline(time.Now().Add(e.stall)) // not every connection has one
	if e.err = e.ctx.Err(); e.err != nil {          // asked after the deadline was moved on, which the watch takes back
		return
	}
	if _, e.err = e.w.Write(p); e.err == nil {
		e.err = e.ctl.Flush()
	}
	e.last = time.Now()
}

// send writes one event. An id is left out if it is empty.
func (e *events) send(id, name string, data any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin()
	e.buf.Reset()
	if id != "" {
		e.buf.WriteString("id: " + id + "\n")
	}
	e.buf.WriteString("event: " + name + "\ndata: ")
	enc := json.NewEncoder(&e.buf) // it ends with a newline, and has none within
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return err
	}
	e.buf.WriteByte('\n')
	e.write(e.buf.Bytes())
	return e.err
}

// close ends the stream, with err if it is one: as an event if it was begun,
// else it is returned, to be answered with.
func (e *events) close(err error) error {
	close(e.done)
	e.wg.Wait()
	defer e.stop()
	switch {
	case e.err != nil || e.ctx.Err() != nil:
		return nil // nobody is there to be told
	case err == nil:
		e.begin()
		return nil
	case e.begun:
		e.send("", "error", server.Explain(e.ctx, err))
		return nil
	}
	return err
}

// wantsJSON reports whether the client asked for one document instead of a
// stream.
func wantsJSON(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		kind, _, _ := strings.Cut(part, ";")
		switch strings.TrimSpace(kind) {
		case "application/json":
			return true
		case "text/event-stream":
			return false
		}
	}
	return false
}
