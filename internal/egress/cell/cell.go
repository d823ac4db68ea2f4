// Package cell is the gateway of one box: from its packets to a verdict.
//
// A connection passes these stages in this order, and ends at the first that
// says no: how many and how fast (budgets); which name its address stands for
// (synth), which must have been asked for here; the policy for that name and
// port (rules); only then is anything resolved, checked and dialled (dial), so a
// denied name causes no packet. What follows depends on the entry's mode. Splice:
// the first bytes must be a TLS hello for that very name, and are passed on with
// all that follows. HTTP: each request is read strictly, judged alone and written
// anew. TCP: bytes are passed on.
//
// The box is told in its own terms: a name that is not allowed does not exist, a
// connection is reset before it begins, a request gets 403 and the rule. All of
// it is told to the operator as an event and counted as a denial.
//
// Cells share nothing but the dialer. Whatever one box sends, its cell is
// bounded in memory, and a failure in it ends one connection.
package cell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/egress/synth"
)

// Config is what a cell is made of.
type Config struct {
	ID string
	// Wire is the box's link; its descriptor is taken over.
	Wire       link.Config
	Policy     *rules.Policy
	Generation uint64
	// Ledger is taken over, with the names that are in it; nil is one that ends with
	// the cell.
	Ledger *ledger.Ledger
	Names  []ledger.Name
	// Dialer, of the policy's resolvers, may be shared by all cells.
	Dialer *dial.Dialer
	// Events is told each decision. It is called concurrently and must not block.
	Events func(event.Event)
	// Timeouts replace the defaults where they are not 0.
	Timeouts Timeouts
	// Room is what the gateway has for connections of this box to the world; nil has
	// no bound.
	Room Room
}

// Room gives places for connections to the world.
type Room interface {
	Take() bool
	Give()
}

// Timeouts bound how long a cell waits for a box or an upstream.
type Timeouts struct {
	Hello time.Duration // for the first bytes; 5 s
	Head  time.Duration // for a request's head; 10 s
	Idle  time.Duration // for any byte in either direction, if the policy does not say; rules.DefaultIdle
}

func (t Timeouts) filled() Timeouts {
	for _, f := range []struct {
		d    *time.Duration
		want time.Duration
	}{{&t.Hello, 5 * time.Second}, {&t.Head, 10 * time.Second}, {&t.Idle, rules.DefaultIdle}} {
		if *f.d == 0 {
			*f.d = f.want
		}
	}
	return t
}

// Cell is safe for concurrent use.
type Cell struct {
	cfg    Config
	wire   *link.Link
	names  *synth.Table
	naming sync.Mutex // held while a name gets an address
	rule   atomic.Pointer[ruling]

	last    atomic.Uint64 // the number of the last connection
	tx, rx  atomic.Int64
	budgets budgets
	store   *sync.Pool
	record  record
	dialing chan struct{} // a place for each dial that is under way

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// maxDialing is how many dials of one box are under way at once; more wait. Each
// takes descriptors for questions, too, and those are the gateway's, for all boxes.
const maxDialing = 32

// ruling is a policy with its generation and who dials for it; they change together.
type ruling struct {
	policy     *rules.Policy
	generation uint64
	dialer     *dial.Dialer
}

// New makes a cell and takes over its ledger and the descriptor of its wire, also
// when it fails. The policy must not be nil: an empty one denies all.
func New(cfg Config) (*Cell, error) {
	if cfg.Ledger == nil {
		var err error
		if cfg.Ledger, err = ledger.New(); err != nil {
			return nil, errors.Join(err, link.Discard(cfg.Wire))
		}
	}
	c, err := open(cfg)
	if err != nil {
		return nil, errors.Join(err, cfg.Ledger.Close())
	}
	return c, nil
}

func open(cfg Config) (*Cell, error) {
	c := &Cell{cfg: cfg, names: synth.New(), conns: map[*conn]struct{}{}, dialing: make(chan struct{}, maxDialing), store: newPieces()}
	c.cfg.Timeouts = cfg.Timeouts.filled()
	if c.cfg.Events == nil {
		c.cfg.Events = func(event.Event) {}
	}
	if cfg.Policy == nil || cfg.Dialer == nil {
		return nil, errors.Join(errors.New("cannot make a cell without a policy and a dialer"), link.Discard(cfg.Wire))
	}
	c.rule.Store(&ruling{cfg.Policy, cfg.Generation, cfg.Dialer})
	c.budgets.ledger = cfg.Ledger
	c.remember(cfg.Names)
	wire, err := link.Open(cfg.Wire, ingress{c})
	if err != nil {
		return nil, fmt.Errorf("cannot take up the wire of %s: %w", cfg.ID, err)
	}
	c.wire = wire
	return c, nil
}

// Run judges what the box sends until its end of the wire is closed, ctx ends
// or Close is called; connections are reset then. It returns an error if the
// wire failed or ctx ended.
func (c *Cell) Run(ctx context.Context) error {
	defer c.end("cell_closed")
	return c.wire.Run(ctx)
}

// Close ends the cell: no packet passes afterwards.
func (c *Cell) Close() error {
	err := c.wire.Close()
	c.end("cell_closed")
	return errors.Join(err, c.budgets.ledger.Close())
}

func (c *Cell) end(code string) {
	for _, o := range c.open() {
		o.abort(code)
	}
}

// Update puts another policy in force. Open connections are judged by it before
// Update returns, and what is no longer allowed is reset. No policy is one that
// allows nothing. What is dialled from then on is dialled by d: it has the policy's
// resolvers.
func (c *Cell) Update(p *rules.Policy, generation uint64, d *dial.Dialer) {
	if p == nil {
		p = new(rules.Policy)
	}
	r := &ruling{p, generation, d}
	c.rule.Store(r)
	for _, o := range c.open() {
		o.judgeAgain(r)
	}
}

func (c *Cell) open() []*conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*conn, 0, len(c.conns))
	for o := range c.conns {
		out = append(out, o)
	}
	return out
}

// Stats is what a cell has done so far.
type Stats struct {
	Generation uint64 `json:"generation"`
	// Open is how many connections are open; Conns how many were begun.
	Open  int    `json:"open"`
	Conns uint64 `json:"conns"`
	// TX and RX are bytes that were passed on from and to the box.
	TX int64 `json:"tx"`
	RX int64 `json:"rx"`
	// Lost is how many events were not told, since there were too many; the
	// denials among them are counted in Denials.
	Lost    int64         `json:"lost,omitempty"`
	Panics  int64         `json:"panics,omitempty"`
	Wire    link.Snapshot `json:"wire"`
	Denials []Denial      `json:"denials,omitempty"`
}

// Stats returns counters and denials.
func (c *Cell) Stats() Stats {
	open := 0
	for _, o := range c.open() {
		if o.isOpen() {
			open++
		}
	}
	s := Stats{Generation: c.rule.Load().generation, Open: open, Conns: c.last.Load(), TX: c.tx.Load(), RX: c.rx.Load(), Wire: c.wire.Counts()}
	s.Denials, s.Lost, s.Panics = c.record.snapshot()
	s.Denials = append(s.Denials, packetDenials(s.Wire.Dropped)...)
	return s
}
