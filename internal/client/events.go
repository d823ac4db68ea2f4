package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// maxEvent bounds one event, in bytes: the largest is a figure.
const maxEvent = 32 << 20

// event is one server-sent event.
type event struct {
	id, name string
	data     []byte
}

// events reads server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html) until fn
// fails, or the stream ends: then it returns io.EOF.
func events(r io.Reader, fn func(event) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var e event
	var line []byte
	size := 0
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if size += len(part); size > maxEvent {
			return wrong("an event is longer than %d bytes", maxEvent)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err // the beginning of a line is none
		}
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			e.id = string(value)
		case "event":
			e.name = string(value)
		case "data":
			e.data = append(append(e.data, value...), '\n')
		case "":
			if len(line) > 0 && line[0] == ':' {
				size -= len(line) // a comment
				break
			}
			if e.data != nil {
				e.data = bytes.TrimSuffix(e.data, []byte("\n"))
				if err := fn(e); err != nil {
					return err
				}
			}
			e, size = event{}, 0
		}
		line = line[:0]
	}
}

// patience is how long a stream that broke is tried to be taken up again. What
// a program writes meanwhile waits that long ([box.ReplayTime]).
const patience = box.ReplayTime - 5*time.Second

// errDone ends a stream whose end was told.
var errDone = errors.New("done")

// listen reads the events of a request, and asks anew, with the id of the last
// event, when the connection breaks. ask returns the request that goes on after
// an id. fn returns errDone at the stream's own end. A stream that ends without
// is an error.
func (c *Client) listen(ctx context.Context, again bool, ask func(last string) call, fn func(event) error) error {
	last := ""
	var broke time.Time // when it was whole last
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		q := ask(last)
		if q.header == nil {
			q.header = map[string]string{}
		}
		q.header["Accept"] = "text/event-stream"
		res, err := c.send(ctx, q)
		var told error // of fn: not the connection's
		if err == nil {
			if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
				res.Body.Close()
				return wrong("it is %s and no stream of events", kind)
			}
			err = events(res.Body, func(e event) error {
				broke, wait = time.Time{}, 50*time.Millisecond
				if e.name == "error" {
					var p problem
					if told = understand(e.data, &p); told == nil {
						told = p.error()
					}
					return told
				}
				if told = fn(e); told == nil && e.id != "" {
					last = e.id
				}
				return told
			})
			res.Body.Close()
			var be *box.Error
			if told == nil && !errors.As(err, &be) { // of the connection
				err = box.Errorf(box.Unavailable, "follow", "cannot follow: the connection to the daemon broke off")
			}
		}
		switch {
		case errors.Is(told, errDone):
			return nil
		case told != nil && (box.KindOf(told) != box.Unavailable || !again):
			return told
		case ctx.Err() != nil:
			return ctx.Err()
		case !again || box.KindOf(err) != box.Unavailable:
			return err
		}
		if broke.IsZero() {
			broke = time.Now()
		}
		if time.Since(broke) > patience {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
