// Package keeper starts the gateway's process and keeps it: it hands over the links
// of boxes with their rules, and when that process dies it starts another one and
// hands over all again, as they are then. If that happens again and again, the boxes
// are divided between more than one, until the box that does it is alone.
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
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// Config is what a Keeper is made of.
type Config struct {
	// Start starts the gateway, which has one file as its control connection and the
	// other one as its standard error.
	Start func(control, stderr *os.File) (*host.Child, error)
	// Settings are asked for at each start.
	Settings func() (control.Settings, error)
	// Event is told of each decision, one line of JSON, in order; nil tells nobody.
	// While it is slow, events are lost, and the gateway does not wait. Where nobody
	// is told, the gateway sends none.
	Event func(json.RawMessage)
	Log   *slog.Logger
	// Ledgers are where boxes' ledgers are; nil keeps them as long as the keeper is.
	Ledgers *ledger.Folder

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

	mu     sync.Mutex
	wards  []*ward // at least one
	ends   uint64  // of gateways
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
	ledger     *os.File
	policy     json.RawMessage
	generation uint64
	before     box.Traffic // of gateways that died, as far as it was asked for
	last       box.Traffic // of this one
	ward       *ward       // under the keeper's lock
	at         *session    // the gateway that has it, if that is the one that there is; else it is tried again
	turn       sync.Mutex  // held by who changes any of that
}

// New makes a keeper. It starts nothing.
func New(cfg Config) *Keeper {
	cfg.Answer, cfg.Ask = cmp.Or(cfg.Answer, answerTime), cmp.Or(cfg.Ask, askEvery)
	k := &Keeper{cfg: cfg, wards: []*ward{new(ward)}, cells: map[box.ID]*kept{}, stop: make(chan struct{}), events: make(chan json.RawMessage, eventRoom)}
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
// compiled rules. It takes the place of an earlier link of the box. A box that has
// no ledger yet is taken to know names, those of the box that it is a copy of.
func (k *Keeper) Attach(ctx context.Context, id box.ID, l box.Link, policy json.RawMessage, generation uint64, names []byte) error {
	err := nic.Check(l)
	c := &kept{link: l, policy: policy, generation: generation}
	if err == nil {
		c.ledger, err = k.ledgerOf(id, names)
	}
	if err != nil {
		l.File.Close()
		return box.Errorf(box.Fault, op, "cannot give box %s a network: %w", id, err)
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	k.mu.Lock()
	before, closed := k.cells[id], k.closed
	if !closed {
		if c.ward = k.place(); before != nil { // whose gateway lets go of the earlier link for this one
			c.ward = before.ward
		}
		k.cells[id] = c
	}
	k.mu.Unlock()
	if closed {
		c.close()
		return errClosed()
	}
	if before != nil {
		before.close()
	}
	if err := k.attach(ctx, id, c); err != nil {
		k.forget(id, c)
		k.retire(k.wardOf(c))
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
		w := k.wardOf(c)
		s, err := k.ensure(ctx, w)
		if err == nil && k.wardOf(c) == w { // it moves only when that gateway has ended
			err = s.attach(ctx, id, c)
			if !errors.Is(err, errGone) {
				return err
			}
		} else if err != nil && !errors.Is(err, errGone) {
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
	c.close()
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
	s := c.ward.now
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

// Traffic tells what became of a box's network so far. While it has no gateway there is
// an error of kind [box.Unavailable] beside what is known.
func (k *Keeper) Traffic(ctx context.Context, id box.ID) (box.Traffic, error) {
	c, err := k.find(id)
	if err != nil {
		return box.Traffic{}, err
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	rep, err := k.ask(ctx, c, control.Request{Op: control.Tell, Cell: string(id)})
	switch {
	case errors.Is(err, errGone):
		return c.sum(), box.Errorf(box.Unavailable, op, "cannot ask for the network of box %s: its gateway has ended, and is not back", id)
	case err != nil:
		return box.Traffic{}, err
	case rep.Traffic != nil:
		c.last = believable(*rep.Traffic)
	}
	return c.sum(), nil
}

// Detach gives up a box's link, and tells what became of its network. It is no error
// if there is none.
func (k *Keeper) Detach(ctx context.Context, id box.ID) box.Traffic {
	defer k.clear(id)
	c, err := k.find(id)
	if err != nil {
		return box.Traffic{Denied: []box.Denial{}}
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	k.forget(id, c)
	if rep, err := k.ask(context.WithoutCancel(ctx), c, control.Request{Op: control.Detach, Cell: string(id)}); err == nil && rep.Traffic != nil {
		c.last = believable(*rep.Traffic)
	}
	k.retire(k.wardOf(c))
	fault.Here("keeper.detached")
	return c.sum()
}

// ask asks the gateway that a box has now.
func (k *Keeper) ask(ctx context.Context, c *kept, req control.Request) (control.Reply, error) {
	k.mu.Lock()
	s := c.ward.now
	k.mu.Unlock()
	if s == nil {
		return control.Reply{}, errGone
	}
	return s.ask(ctx, req)
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

// Try starts the first gateway, if there is none, and asks whether it answers. It
// returns the number of its process.
func (k *Keeper) Try(ctx context.Context) (pid int, err error) {
	s, err := k.ensure(ctx, k.first())
	if err == nil {
		_, err = s.ask(ctx, control.Request{Op: control.Ping})
	}
	if err != nil {
		return 0, err
	}
	return s.child.Pid(), nil
}

// Close ends all gateways. Boxes have no network from then on.
func (k *Keeper) Close() error {
	k.mu.Lock()
	if !k.closed {
		k.closed = true
		close(k.stop)
	}
	cells := k.cells
	k.cells = map[box.ID]*kept{}
	var all []*session
	for _, w := range k.wards {
		if w.now != nil {
			all = append(all, w.now)
		}
	}
	k.mu.Unlock()
	var ending sync.WaitGroup
	for _, s := range all { // each may take its time
		ending.Go(s.end)
	}
	ending.Wait()
	k.work.Wait()
	for _, c := range cells {
		c.close()
	}
	return nil
}

// PID is the process of the first gateway, 0 while there is none.
func (k *Keeper) PID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.wards[0].now; s != nil {
		return s.child.Pid()
	}
	return 0
}
