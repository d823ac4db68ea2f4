package wire

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

// ErrGone is returned by calls that the far end's end cut short.
var ErrGone = errors.New("the box's first process has ended")

// ErrTooLong is returned for a request that does not fit into one message.
var ErrTooLong = errors.New("the request is too long")

// maxUnanswered bounds the requests that the far end has not answered. A socket's
// buffer holds what those are, so that no call waits longer than its context, and
// a far end that stands still, as its programs may see to, holds nobody.
const maxUnanswered = 64

// Conn is the front's end of a link. Calls may be made concurrently.
type Conn struct {
	link *host.Link
	gone chan struct{} // closed when the link ends

	mu      sync.Mutex
	seq     int
	pending map[int]chan answer
	sent    map[int]bool  // numbers of requests without an answer, waited for or not
	room    chan struct{} // has one for each of sent
	limits  func(Limit)
	expired bool
	why     string // the far end's last words
	cause   error  // what ended the link
}

// NewConn takes over a link.
func NewConn(link *host.Link) *Conn {
	c := &Conn{link: link, gone: make(chan struct{}), pending: make(map[int]chan answer), sent: make(map[int]bool), room: make(chan struct{}, maxUnanswered)}
	go c.read()
	return c
}

// Close ends the link.
func (c *Conn) Close() { c.link.Close() }

// OnLimit sets who is told of limits from now on; nil for nobody.
func (c *Conn) OnLimit(fn func(Limit)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits = fn
}

// Tell tells of a limit as if the far end had. It reports whether there is
// somebody to be told.
func (c *Conn) Tell(l Limit) bool {
	c.mu.Lock()
	limits := c.limits
	c.mu.Unlock()
	if limits == nil {
		return false
	}
	limits(l)
	return true
}

// Expired reports whether the far end said that it ends a program's time, and
// with it itself; see [Exec].
func (c *Conn) Expired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expired
}

// Why waits for the link's end, or ctx, and returns what the far end said of its
// own; empty if it said nothing.
func (c *Conn) Why(ctx context.Context) string {
	select {
	case <-c.gone:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

func (c *Conn) read() {
	defer close(c.gone)
	for {
		body, files, err := c.link.Receive()
		if err != nil {
			closeAll(files)
			c.mu.Lock()
			c.cause = err
			c.mu.Unlock()
			return
		}
		rep := answer{files: files}
		if err := json.Unmarshal(body, &rep.Reply); err != nil {
			closeAll(files)
			return
		}
		c.mu.Lock()
		ch := c.pending[rep.Seq]
		delete(c.pending, rep.Seq)
		c.answered(rep.Seq)
		limits := c.limits
		c.expired = c.expired || rep.Seq == 0 && rep.Event == Expired
		c.mu.Unlock()
		if ch == nil {
			closeAll(files)
		}
		switch {
		case ch != nil:
			ch <- rep
		case rep.Seq == 0 && rep.Event == Ending:
			var e End
			if json.Unmarshal(rep.Body, &e) == nil {
				c.mu.Lock()
				c.why = e.Why
				c.mu.Unlock()
			}
		case rep.Seq == 0 && rep.Event == "limit" && limits != nil:
			var l Limit
			if json.Unmarshal(rep.Body, &l) == nil {
				limits(l)
			}
		}
	}
}

// Call sends a request and waits for its reply, for ctx, or for the far end's
// end, which is [ErrGone]. The files stay the caller's.
func (c *Conn) Call(ctx context.Context, op string, in, out any, files ...*os.File) error {
	got, err := c.call(ctx, op, in, out, files)
	closeAll(got) // the far end has nothing to send us
	return err
}

// CallForFiles is Call for an operation that answers with n files. What they
// are is for the caller to judge.
func (c *Conn) CallForFiles(ctx context.Context, n int, op string, in, out any) ([]*os.File, error) {
	got, err := c.call(ctx, op, in, out, nil)
	if err == nil && len(got) != n {
		err = fmt.Errorf("cannot %s: %d files came, not %d", op, len(got), n)
	}
	if err != nil {
		closeAll(got)
		return nil, err
	}
	return got, nil
}

// answer is a reply and the files that came with it.
type answer struct {
	Reply
	files []*os.File
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (c *Conn) call(ctx context.Context, op string, in, out any, files []*os.File) ([]*os.File, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s request: %w", op, err)
	}
	ch := make(chan answer, 1)
	select {
	case c.room <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.gone:
		return nil, c.lost()
	}
	c.mu.Lock()
	c.seq++
	seq := c.seq
	c.pending[seq], c.sent[seq] = ch, true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, seq)
		c.mu.Unlock()
		select {
		case late := <-ch: // nobody waits for it any more
			closeAll(late.files)
		default:
		}
	}()
	msg, err := json.Marshal(Request{Seq: seq, Op: op, Body: body})
	if err != nil {
		c.unsent(seq)
		return nil, fmt.Errorf("cannot encode %s request: %w", op, err)
	}
	if len(msg) > host.MaxMessage {
		c.unsent(seq)
		return nil, ErrTooLong
	}
	if err := c.link.Send(msg, files...); err != nil {
		return nil, errors.Join(ErrGone, err)
	}
	select {
	case rep := <-ch:
		return rep.files, decode(rep.Reply, out)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.gone:
		select {
		case rep := <-ch:
			return rep.files, decode(rep.Reply, out)
		default:
			return nil, c.lost()
		}
	}
}

// lost is ErrGone, and that this host was short of what an answer takes, if that
// ended the link.
func (c *Conn) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if host.IsShortage(c.cause) {
		return errors.Join(ErrGone, c.cause)
	}
	return ErrGone
}

// answered notes that a request has been, or never will be. Called with c.mu.
func (c *Conn) answered(seq int) {
	if c.sent[seq] {
		delete(c.sent, seq)
		<-c.room
	}
}

func (c *Conn) unsent(seq int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered(seq)
}

func decode(rep Reply, out any) error {
	if rep.Error != "" {
		if rep.Unusable {
			return &box.Error{Op: "create box", Kind: box.Unusable, Message: rep.Error}
		}
		if rep.Conflict {
			return &box.Error{Op: "use box", Kind: box.Conflict, Message: rep.Error}
		}
		return errors.New(rep.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(rep.Body, out)
}
