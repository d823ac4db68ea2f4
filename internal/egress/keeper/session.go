package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// errGone is for a gateway that has ended before it answered.
var errGone = errors.New("the gateway has ended")

// session is one gateway's life.
type session struct {
	child *host.Child
	link  *host.Link
	gone  chan struct{} // closed when it says nothing more
	wait  time.Duration // for an answer
	words words

	mu      sync.Mutex
	seq     uint64
	pending map[uint64]chan control.Reply
	ending  sync.Once
}

func (k *Keeper) open() (*session, error) {
	ours, theirs, err := host.LinkPair()
	if err != nil {
		return nil, err
	}
	hear, say, err := os.Pipe()
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, err
	}
	child, err := k.cfg.Start(theirs, say)
	theirs.Close()
	say.Close()
	if err != nil {
		ours.Close()
		hear.Close()
		return nil, err
	}
	s := &session{child: child, link: ours, gone: make(chan struct{}), wait: k.cfg.Answer, pending: map[uint64]chan control.Reply{}}
	s.words.done = make(chan struct{})
	go s.words.hear(hear, k.cfg.Log)
	go s.read(k.heard)
	return s, nil
}

// read hands out answers and events until the connection ends.
func (s *session) read(tell func(json.RawMessage)) {
	defer close(s.gone)
	for {
		body, files, err := s.link.Receive()
		for _, f := range files {
			f.Close() // it has nothing to give
		}
		if err != nil {
			return
		}
		var rep control.Reply
		if json.Unmarshal(body, &rep) != nil {
			return
		}
		if rep.Seq == 0 {
			if rep.Event != nil {
				tell(rep.Event)
			}
			continue
		}
		s.mu.Lock()
		ch := s.pending[rep.Seq]
		delete(s.pending, rep.Seq)
		s.mu.Unlock()
		if ch != nil {
			ch <- rep
		}
	}
}

// ask sends a request and waits for the answer. A gateway that gives none in time, or
// does not even take the request, does not know what is in force, and is ended: when
// errGone comes back it is no more.
func (s *session) ask(ctx context.Context, req control.Request, files ...*os.File) (control.Reply, error) {
	ch := make(chan control.Reply, 1)
	s.mu.Lock()
	s.seq++
	req.Seq = s.seq
	s.pending[req.Seq] = ch
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.pending, req.Seq)
		s.mu.Unlock()
	}()
	body, err := json.Marshal(req)
	if err != nil {
		return control.Reply{}, box.Errorf(box.Fault, op, "cannot encode a request: %w", err)
	}
	if len(body) > host.MaxMessage {
		return control.Reply{}, box.Errorf(box.Invalid, op, "cannot hand over rules of %d bytes: at most %d are taken", len(body), host.MaxMessage)
	}
	late := time.AfterFunc(s.wait, s.kill)
	defer late.Stop()
	if err := s.link.Send(body, files...); err != nil {
		for _, f := range files {
			if _, serr := f.Stat(); serr != nil { // it is the file, and not the gateway
				return control.Reply{}, box.Errorf(box.Unavailable, op, "cannot hand over a link that was given up: %w", serr)
			}
		}
		return control.Reply{}, s.lost()
	}
	select {
	case rep := <-ch:
		if rep.Error != "" && rep.Short {
			return rep, box.Errorf(box.Exhausted, op, "cannot use the gateway now: %s", rep.Error)
		}
		if rep.Error != "" {
			return rep, box.Errorf(box.Fault, op, "the gateway refuses: %s", rep.Error)
		}
		return rep, nil
	case <-s.gone:
		return control.Reply{}, s.lost()
	case <-ctx.Done():
		return control.Reply{}, box.Errorf(box.Unavailable, op, "cannot wait for the gateway: %w", ctx.Err())
	}
}

// kill ends it at once, and its connection, whoever else may have an end of that.
func (s *session) kill() {
	s.child.Kill()
	s.link.Close()
}

// lost is errGone, once that is true.
func (s *session) lost() error {
	s.kill()
	<-s.gone
	<-s.child.Done()
	return errGone
}

// attach hands a box over. Whoever calls has the box's turn. It is waited for until
// there is an answer, or the gateway is gone: one that takes the box after all that
// was given up would have rules that no change reaches.
func (s *session) attach(ctx context.Context, id box.ID, c *kept) error {
	c.at = nil
	_, err := s.ask(context.WithoutCancel(ctx), control.Request{Op: control.Attach, Cell: string(id), Kind: c.link.Kind, Policy: c.policy, Generation: c.generation}, c.link.File, c.ledger)
	if err == nil {
		c.at = s
	}
	return err
}

// over reports whether it says nothing more.
func (s *session) over() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// end ends it and waits until it has.
func (s *session) end() {
	s.ending.Do(func() {
		s.link.Close()
		select {
		case <-s.child.Done():
		case <-time.After(endTime):
			s.child.Kill()
			<-s.child.Done()
		}
		select {
		case <-s.words.done:
		case <-time.After(endTime): // somebody else has its standard error
		}
	})
}
