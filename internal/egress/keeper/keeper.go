// Package keeper starts the gateway's process and keeps it: it hands over the links
// of boxes with their rules, and when that process dies it starts another one and
// hands over all again, as they are then.
//
// The links are the keeper's own descriptors, so they outlive the gateway. What is
// in force is what is written here, never what the gateway says: one that comes up
// again gets each box's rules with their generation. While there is none, boxes have
// no network.
//
// Nothing of the network stack is linked in here.
package keeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// Config is what a Keeper is made of.
type Config struct {
	// Start starts the gateway, which has the file as its control connection.
	Start func(control *os.File) (*host.Child, error)
	// Settings are asked for at each start.
	Settings func() (control.Settings, error)
	// Event is told of each decision, one line of JSON, in order; nil tells nobody.
	// While it is slow, events are lost, and the gateway does not wait.
	Event func(json.RawMessage)
	Log   *slog.Logger

	// Answer is how long a gateway has for an answer before it is taken for dead, and
	// Ask how often it is asked whether it lives; 0 is 10 s and 15 s.
	Answer, Ask time.Duration
}

const op = "keep gateway"

// Times of a gateway that fails.
const (
	answerTime  = 10 * time.Second
	askEvery    = 15 * time.Second
	firstWait   = 50 * time.Millisecond
	longestWait = 5 * time.Second
	endTime     = 2 * time.Second
)

// eventRoom is how many events may wait to be told.
const eventRoom = 1024

// Keeper is safe for concurrent use. It starts the gateway when the first box needs
// it.
type Keeper struct {
	cfg Config

	starting sync.Mutex // held by who starts a gateway

	mu     sync.Mutex
	now    *session // nil while there is none
	cells  map[box.ID]*kept
	closed bool
	stop   chan struct{} // closed with it
	events chan json.RawMessage
	lost   atomic.Int64 // of the events
	work   sync.WaitGroup
}

// kept is a box's link with the rules that are in force.
type kept struct {
	link       box.Link
	policy     json.RawMessage
	generation uint64
	before     box.Traffic // of gateways that died, as far as it was asked for
	last       box.Traffic // of this one
	at         *session    // the gateway that has it, if that is the one that there is; else it is tried again
	turn       sync.Mutex  // held by who changes any of that
}

// New makes a keeper. It starts nothing.
func New(cfg Config) *Keeper {
	cfg.Answer, cfg.Ask = cmp.Or(cfg.Answer, answerTime), cmp.Or(cfg.Ask, askEvery)
	k := &Keeper{cfg: cfg, cells: map[box.ID]*kept{}, stop: make(chan struct{}), events: make(chan json.RawMessage, eventRoom)}
	go k.tell()
	return k
}

// tell hands events on at their hearer's pace.
func (k *Keeper) tell() {
	for {
		select {
		case <-k.stop:
			return
		case e := <-k.events:
			if k.cfg.Event != nil {
				k.cfg.Event(e)
			}
			if n := k.lost.Swap(0); n > 0 {
				k.cfg.Log.Warn("events of the network were lost: nobody took them in time", "count", n)
			}
		}
	}
}

// heard is what a gateway told; it does not wait.
func (k *Keeper) heard(e json.RawMessage) {
	if len(e) > maxEvent || cleaned(string(e), maxEvent) != string(e) {
		k.lost.Add(1) // no honest gateway says that
		return
	}
	select {
	case k.events <- e:
	default:
		k.lost.Add(1)
	}
}

// Attach hands over a box's link, whose file is the keeper's from now on, with
// compiled rules. It takes the place of an earlier link of the box.
func (k *Keeper) Attach(ctx context.Context, id box.ID, l box.Link, policy json.RawMessage, generation uint64) error {
	if err := nic.Check(l); err != nil {
		l.File.Close()
		return box.Errorf(box.Fault, op, "cannot give box %s a network: %w", id, err)
	}
	c := &kept{link: l, policy: policy, generation: generation}
	c.turn.Lock()
	defer c.turn.Unlock()
	k.mu.Lock()
	before, closed := k.cells[id], k.closed
	if !closed {
		k.cells[id] = c
	}
	k.mu.Unlock()
	if closed {
		l.File.Close()
		return errClosed()
	}
	if before != nil {
		before.link.File.Close()
	}
	if err := k.attach(ctx, id, c); err != nil {
		k.forget(id, c)
		return err
	}
	fault.Here("keeper.attached")
	return nil
}

func errClosed() error {
	return box.Errorf(box.Unavailable, op, "cannot give a box a network: the gateway is being ended")
}

// attach hands one box over to the gateway that there is, or the one that comes.
func (k *Keeper) attach(ctx context.Context, id box.ID, c *kept) error {
	for {
		s, err := k.ensure(ctx)
		if err != nil {
			return err
		}
		if err = s.attach(ctx, id, c); !errors.Is(err, errGone) {
			return err
		}
		if ctx.Err() != nil {
			return box.Errorf(box.Unavailable, op, "cannot wait for the gateway: %w", ctx.Err())
		}
	}
}

func (k *Keeper) forget(id box.ID, c *kept) {
	k.mu.Lock()
	if k.cells[id] == c {
		delete(k.cells, id)
	}
	k.mu.Unlock()
	c.link.File.Close()
}

func (k *Keeper) find(id box.ID) (*kept, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.cells[id]; c != nil {
		return c, nil
	}
	return nil, box.Errorf(box.Unavailable, op, "cannot ask for the network of box %s: its link is not taken up", id)
}

// Update puts other rules in force, and closes what they no longer allow. A gateway
// that cannot be reached gets them when it comes: then the box has no network
// meanwhile.
func (k *Keeper) Update(ctx context.Context, id box.ID, policy json.RawMessage, generation uint64) error {
	c, err := k.find(id)
	if err != nil {
		return err
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	if generation <= c.generation {
		return box.Errorf(box.Conflict, op, "cannot change the rules of box %s to generation %d: %d is in force", id, generation, c.generation)
	}
	before, was := c.policy, c.generation
	c.policy, c.generation = policy, generation
	fault.Here("keeper.rules-kept")
	k.mu.Lock()
	s := k.now
	k.mu.Unlock()
	if s == nil || c.at != s {
		return nil // whoever comes gets it
	}
	// Whoever goes away meanwhile does not leave it undecided.
	_, err = s.ask(context.WithoutCancel(ctx), control.Request{Op: control.Update, Cell: string(id), Policy: policy, Generation: generation})
	fault.Here("keeper.rules-told")
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		c.policy, c.generation = before, was
	}
	return err
}

// Traffic tells what became of a box's network so far.
func (k *Keeper) Traffic(ctx context.Context, id box.ID) (box.Traffic, error) {
	c, err := k.find(id)
	if err != nil {
		return box.Traffic{}, err
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	rep, err := k.ask(ctx, control.Request{Op: control.Tell, Cell: string(id)})
	if err == nil && rep.Traffic != nil {
		c.last = believable(*rep.Traffic)
	} else if !errors.Is(err, errGone) {
		return box.Traffic{}, err
	}
	return c.sum(), nil
}

// Detach gives up a box's link, and tells what became of its network. It is no error
// if there is none.
func (k *Keeper) Detach(ctx context.Context, id box.ID) box.Traffic {
	c, err := k.find(id)
	if err != nil {
		return box.Traffic{Denied: []box.Denial{}}
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	k.forget(id, c)
	if rep, err := k.ask(context.WithoutCancel(ctx), control.Request{Op: control.Detach, Cell: string(id)}); err == nil && rep.Traffic != nil {
		c.last = believable(*rep.Traffic)
	}
	fault.Here("keeper.detached")
	return c.sum()
}

// ask asks the gateway that there is now.
func (k *Keeper) ask(ctx context.Context, req control.Request, files ...*os.File) (control.Reply, error) {
	k.mu.Lock()
	s := k.now
	k.mu.Unlock()
	if s == nil {
		return control.Reply{}, errGone
	}
	return s.ask(ctx, req, files...)
}

// sum adds up what all gateways told of the box.
func (c *kept) sum() box.Traffic {
	t := c.last
	t.Generation = c.generation
	t.Connections += c.before.Connections
	t.Sent += c.before.Sent
	t.Received += c.before.Received
	t.Denied = merged(c.before.Denied, c.last.Denied)
	return t
}

// ensure returns the gateway that there is, and starts one if there is none.
func (k *Keeper) ensure(ctx context.Context) (*session, error) {
	k.starting.Lock()
	defer k.starting.Unlock()
	k.mu.Lock()
	s, closed := k.now, k.closed
	k.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed()
	case s != nil && !s.over():
		return s, nil
	}
	s, err := k.begin(ctx)
	if err != nil {
		return nil, box.Errorf(box.Unusable, op, "cannot start the gateway: %w", err).WithHint("`sunaba doctor` tries it")
	}
	return s, nil
}

// begin starts a gateway. Whoever calls holds starting.
func (k *Keeper) begin(ctx context.Context) (*session, error) {
	settings, err := k.cfg.Settings()
	if err != nil {
		return nil, err
	}
	s, err := open(k.cfg.Start, k.heard, k.cfg.Answer)
	if err != nil {
		return nil, err
	}
	if _, err := s.ask(ctx, control.Request{Op: control.Start, Settings: &settings}); err != nil {
		s.end()
		return nil, fmt.Errorf("it does not answer: %w", err)
	}
	fault.Here("keeper.gateway-started")
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		s.end()
		return nil, errClosed()
	}
	k.now = s
	k.work.Go(func() { k.watch(s) })
	return s, nil
}

// watch waits for a gateway's end and sees to it that there is another one, if a box
// needs it.
func (k *Keeper) watch(s *session) {
	k.listen(s)
	s.end()
	k.mu.Lock()
	if k.now == s {
		k.now = nil
	}
	closed := k.closed
	k.mu.Unlock()
	if closed {
		return
	}
	k.cfg.Log.Error("the gateway has ended: boxes have no network until it is back")
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		select {
		case <-time.After(wait):
		case <-k.stop:
			return
		}
		if k.again() {
			return
		}
	}
}

// listen returns when a gateway has ended. One that does not answer is ended.
func (k *Keeper) listen(s *session) {
	tick := time.NewTicker(k.cfg.Ask)
	defer tick.Stop()
	for {
		select {
		case <-s.gone:
			return
		case <-tick.C:
			if _, err := s.ask(context.Background(), control.Request{Op: control.Ping}); err == nil {
				k.retry(s)
			}
		}
	}
}

// again starts a gateway for the boxes that there are, and reports whether nothing
// is left to do.
func (k *Keeper) again() bool {
	ctx, cancel := context.WithTimeout(context.Background(), k.cfg.Answer)
	defer cancel()
	k.mu.Lock()
	all := maps.Clone(k.cells)
	closed := k.closed
	k.mu.Unlock()
	if closed || len(all) == 0 {
		return true
	}
	s, err := k.ensure(ctx)
	if err != nil {
		k.cfg.Log.Error("cannot start the gateway again", "error", err)
		return false
	}
	for id, c := range all {
		err := k.attachAgain(ctx, s, id, c)
		if errors.Is(err, errGone) {
			return true // its own watcher goes on
		}
		if err != nil {
			k.cfg.Log.Error("cannot give a box its network again", "box", id, "error", err)
		}
	}
	k.cfg.Log.Info("the gateway is back", "boxes", len(all))
	return true
}

// attachAgain hands a box over to a gateway that took the place of another one, unless
// it was given up meanwhile, or that gateway has it.
func (k *Keeper) attachAgain(ctx context.Context, s *session, id box.ID, c *kept) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	k.mu.Lock()
	there := k.cells[id] == c
	k.mu.Unlock()
	if !there || c.at == s {
		return nil
	}
	c.before, c.last = c.sum(), box.Traffic{}
	err := s.attach(ctx, id, c)
	fault.Here("keeper.attached-again")
	return err
}

// retry hands over what this gateway could not take before.
func (k *Keeper) retry(s *session) {
	k.mu.Lock()
	all := maps.Clone(k.cells)
	k.mu.Unlock()
	for id, c := range all {
		c.turn.Lock()
		has := c.at == s
		c.turn.Unlock()
		if has {
			continue
		}
		if err := k.attachAgain(context.Background(), s, id, c); err == nil {
			k.cfg.Log.Info("a box has its network again", "box", id)
		}
	}
}

// Try starts the gateway, if there is none, and asks whether it answers. It returns
// the number of its process.
func (k *Keeper) Try(ctx context.Context) (pid int, err error) {
	s, err := k.ensure(ctx)
	if err == nil {
		_, err = s.ask(ctx, control.Request{Op: control.Ping})
	}
	if err != nil {
		return 0, err
	}
	return s.child.Pid(), nil
}

// Close ends the gateway. Boxes have no network from then on.
func (k *Keeper) Close() error {
	k.mu.Lock()
	if !k.closed {
		k.closed = true
		close(k.stop)
	}
	s, cells := k.now, k.cells
	k.cells = map[box.ID]*kept{}
	k.mu.Unlock()
	if s != nil {
		s.end()
	}
	k.work.Wait()
	for _, c := range cells {
		c.link.File.Close()
	}
	return nil
}

// PID is the gateway's process, 0 while there is none.
func (k *Keeper) PID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil {
		return 0
	}
	return k.now.child.Pid()
}
