package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// errRunnerGone is returned by calls that the runner's end cut short.
var errRunnerGone = errors.New("the box's runner has ended")

// conn is the front's end of the link to one runner. Calls may be made
// concurrently.
type conn struct {
	link *host.Link
	gone chan struct{} // closed when the link ends

	mu      sync.Mutex
	seq     int
	pending map[int]chan reply
	events  func(limitEvent)
}

func newConn(link *host.Link) *conn {
	c := &conn{link: link, gone: make(chan struct{}), pending: make(map[int]chan reply)}
	go c.read()
	return c
}

// onLimit sets who is told of limits from now on.
func (c *conn) onLimit(fn func(limitEvent)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = fn
}

func (c *conn) read() {
	defer close(c.gone)
	for {
		body, files, err := c.link.Receive()
		closeAll(files) // a runner has nothing to send us
		if err != nil {
			return
		}
		var rep reply
		if err := json.Unmarshal(body, &rep); err != nil {
			return
		}
		c.mu.Lock()
		ch := c.pending[rep.Seq]
		delete(c.pending, rep.Seq)
		events := c.events
		c.mu.Unlock()
		switch {
		case ch != nil:
			ch <- rep
		case rep.Seq == 0 && rep.Event == "limit" && events != nil:
			var e limitEvent
			if json.Unmarshal(rep.Body, &e) == nil {
				events(e)
			}
		}
	}
}

// call sends a request and waits for its reply, ctx, or the runner's end.
func (c *conn) call(ctx context.Context, op string, in, out any, files ...*os.File) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("cannot encode %s request: %w", op, err)
	}
	ch := make(chan reply, 1)
	c.mu.Lock()
	c.seq++
	seq := c.seq
	c.pending[seq] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, seq)
		c.mu.Unlock()
	}()
	msg, err := json.Marshal(request{Seq: seq, Op: op, Body: body})
	if err != nil {
		return fmt.Errorf("cannot encode %s request: %w", op, err)
	}
	if len(msg) > host.MaxMessage {
		return fmt.Errorf("cannot send %s request: %w", op, errTooLong)
	}
	if err := c.link.Send(msg, files...); err != nil {
		return errors.Join(errRunnerGone, err)
	}
	select {
	case rep := <-ch:
		return decode(rep, out)
	case <-ctx.Done():
		return ctx.Err()
	case <-c.gone:
		select {
		case rep := <-ch:
			return decode(rep, out)
		default:
			return errRunnerGone
		}
	}
}

func decode(rep reply, out any) error {
	if rep.Error != "" {
		if rep.Unusable {
			return &box.Error{Op: "create box", Kind: box.Unusable, Message: rep.Error}
		}
		return errors.New(rep.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(rep.Body, out)
}
