// Package gate is the gateway's process: `sunaba egress`, which nobody types.
//
// It is the one process that reads what hostile boxes send, so it has little to
// lose: a user of its own where root starts it, no capability, no file system at
// all (Landlock), the system calls that move bytes and no others (seccomp), and of boxes nothing
// but the ends of their links. It confines itself in a first step, as far as a program can that
// has yet to start, then executes itself again, since Linux keeps all of this by thread, and
// gives up the rest. It has no configuration, listens nowhere, and ends with the connection to
// who started it: then boxes have no network.
package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/egress/cell"
	"github.com/sunaba-dev/sunaba/internal/egress/control"
	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Argv is the name that the program is started by for the first step; argvGate is
// that of the second.
const (
	Argv     = "sunaba-egress"
	argvGate = "sunaba-gate"
)

// Dispatch runs the part that args[0] names and returns its exit code, or false at
// once.
func Dispatch(args []string) (int, bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case Argv:
		return first(), true
	case argvGate:
		return second(), true
	}
	return 0, false
}

// controlFD is the connection to who started this process.
const controlFD = 3

// first gives up all that the gateway does not need, and becomes it.
func first() int {
	yieldMemory()
	err := become(argvGate)
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func second() int {
	l, err := host.NewLink(os.NewFile(controlFD, "control"))
	g := &gate{link: l, cells: map[string]*held{}, events: make(chan *event.Event, eventRoom)}
	if err == nil {
		g.room, err = newRoom()
	}
	if err == nil {
		err = narrow()
	}
	if err == nil {
		err = dial.Ready()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go g.tellEvents()
	g.serve()
	return 0
}

// eventRoom is how many events may wait to be told. What comes then is lost, and
// the cell's denials count it all the same.
const eventRoom = 4096

type gate struct {
	link   *host.Link
	events chan *event.Event
	heard  atomic.Bool  // whether events are wanted
	lost   atomic.Int64 // events for which there was no room, of any box

	dialers dialers
	room    *room

	mu    sync.Mutex
	cells map[string]*held
}

// held is a cell that runs.
type held struct {
	*cell.Cell
	done chan struct{} // closed when it has ended
}

// serve answers requests, one after the other, until the connection ends.
func (g *gate) serve() {
	for {
		body, files, lost := g.link.Receive()
		if body == nil {
			return
		}
		var req control.Request
		if err := json.Unmarshal(body, &req); err != nil {
			return // who starts this program and it are of one build
		}
		rep := control.Reply{Seq: req.Seq}
		err := lost // of a file for which there is no room
		if err == nil {
			rep.Traffic, err = g.do(req, files)
		}
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			rep.Error, rep.Short = err.Error(), host.IsShortage(err)
		}
		if g.send(rep) != nil {
			return
		}
	}
}

func (g *gate) send(rep control.Reply) error {
	b, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	return g.link.Send(b)
}

// tellEvents tells events at its own pace: no connection waits for it.
func (g *gate) tellEvents() {
	for e := range g.events {
		b, err := json.Marshal(e)
		if err != nil {
			g.lost.Add(e.Lost + 1)
			continue
		}
		if g.send(control.Reply{Event: b}) != nil {
			return
		}
	}
}

func (g *gate) do(req control.Request, files []*os.File) (*box.Traffic, error) {
	switch req.Op {
	case control.Start:
		if req.Settings == nil {
			return nil, errors.New("cannot start: no settings came")
		}
		g.dialers.set(*req.Settings)
		g.heard.Store(req.Settings.Events)
		return nil, nil
	case control.Attach:
		return nil, g.attach(req, files)
	case control.Ping:
		return nil, nil
	}
	h := g.find(req.Cell)
	if h == nil {
		return nil, fmt.Errorf("cannot %s: there is no cell %q", req.Op, req.Cell)
	}
	switch req.Op {
	case control.Update:
		p, err := rules.Parse(req.Policy)
		if err != nil {
			return nil, err
		}
		d, err := g.dialers.of(p)
		if err != nil {
			return nil, err
		}
		h.Update(p, req.Generation, d)
		return nil, nil
	case control.Tell:
		return trafficOf(h.Stats()), nil
	case control.Detach:
		g.drop(req.Cell, h)
		return trafficOf(h.Stats()), nil
	}
	return nil, fmt.Errorf("cannot handle %q: there is no such request", req.Op)
}

func (g *gate) find(name string) *held {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cells[name]
}

// attach takes up a box's link.
func (g *gate) attach(req control.Request, files []*os.File) error {
	if len(files) != 2 || req.Cell == "" || req.Generation == 0 {
		return errors.New("cannot attach: a name, a generation and two files are needed")
	}
	p, err := rules.Parse(req.Policy)
	if err != nil {
		return err
	}
	d, err := g.dialers.of(p)
	if err != nil {
		return err
	}
	if before := g.find(req.Cell); before != nil {
		g.drop(req.Cell, before)
	}
	l, names, err := ledgerOf(files[1])
	if err != nil {
		return err
	}
	wire, err := wireOf(files[0], req.Kind)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	sh := g.room.enter()
	c, err := cell.New(cell.Config{
		ID: req.Cell, Wire: wire, Policy: p, Generation: req.Generation, Ledger: l, Names: names, Dialer: d, Events: g.emit, Room: sh,
	})
	if err != nil {
		g.room.leave()
		return err
	}
	h := &held{Cell: c, done: make(chan struct{})}
	g.mu.Lock()
	g.cells[req.Cell] = h
	g.mu.Unlock()
	go g.run(req.Cell, h)
	return nil
}

// run runs a cell until its box has ended or it is dropped.
func (g *gate) run(name string, h *held) {
	defer close(h.done)
	defer g.room.leave()
	defer func() {
		if p := recover(); p != nil { // one box's, and no other's
			fmt.Fprintf(os.Stderr, "cell %s: panic: %v\n", name, p)
			_ = h.Close()
		}
	}()
	_ = h.Run(context.Background())
}

// dropTime is how long the end of a cell is waited for. Its descriptor is shared with
// the box's first process, which can make a read of it wait: that is no matter of the
// other boxes, whose requests come next.
const dropTime = time.Second

func (g *gate) drop(name string, h *held) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Close()
		<-h.done
	}()
	select {
	case <-ended:
	case <-time.After(dropTime):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cells[name] == h {
		delete(g.cells, name)
	}
}

// emit tells an event, or the next one that it was lost.
func (g *gate) emit(e event.Event) {
	if !g.heard.Load() {
		return
	}
	told := e // on the heap only from here
	told.Lost += g.lost.Swap(0)
	select {
	case g.events <- &told:
		return
	default:
	}
	g.lost.Add(told.Lost + 1)
}

func ledgerOf(f *os.File) (*ledger.Ledger, []ledger.Name, error) {
	own, err := host.Dup(f)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot take the ledger: %w", err)
	}
	return ledger.Open(own)
}

// wireOf takes over a duplicate of a link's descriptor.
func wireOf(f *os.File, kind box.LinkKind) (link.Config, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return link.Config{}, fmt.Errorf("cannot take the link: %w", err)
	}
	c := link.Config{FD: fd, Addresses: link.Plan()}
	switch kind {
	case box.LinkSeqpacket:
		c.Kind, c.Offload = link.Seqpacket, true
	case box.LinkTUN:
		c.Kind = link.TUN
	case box.LinkPacket:
		c.Kind = link.Packet
		err = place(&c)
	default:
		err = fmt.Errorf("cannot take the link: there is no kind %q", kind)
	}
	if err != nil {
		unix.Close(fd)
	}
	return c, err
}

func boxMAC() (out [6]byte) {
	a, _ := net.ParseMAC(box.LinkBoxMAC) // a constant that is one
	copy(out[:], a)
	return out
}

func trafficOf(s cell.Stats) *box.Traffic {
	t := &box.Traffic{Generation: s.Generation, Open: s.Open, Connections: s.Conns, Sent: s.TX, Received: s.RX, Denied: []box.Denial{}}
	for _, d := range s.Denials {
		t.Denied = append(t.Denied, box.Denial(d))
	}
	return t
}
