package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/event"
	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/egress/synth"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// conn is one connection of the box, from its first packet to its last.
type conn struct {
	cell  *Cell
	id    uint64
	dst   netip.AddrPort
	name  hostname.Name // empty for an address that no name stands for
	begin time.Time
	ctx   context.Context
	stop  context.CancelFunc

	tx, rx atomic.Int64
	moved  atomic.Int64 // when a byte was last passed on, in nanoseconds since begin

	mu      sync.Mutex
	entry   *rules.Host
	verdict rules.Verdict
	request *rules.Request // the last one, in mode HTTP
	ruled   rules.Verdict  // of that request, if a rule below the entry gave it
	box     *link.Conn
	up      *net.TCPConn
	addr    netip.Addr // of the upstream, once it is dialled
	code    string     // why it ended; empty while it has not
	idle    *time.Timer
	place   bool // it has one of the gateway's places for a connection to the world
}

// TCP takes a connection from its first packet to its end.
func (i ingress) TCP(f *link.Flow) {
	c := i.c
	o := &conn{cell: c, id: c.last.Add(1), dst: f.Dst, begin: time.Now()}
	o.ctx, o.stop = context.WithCancel(context.Background())
	defer o.stop()
	defer func() {
		if recover() != nil {
			c.record.panicked()
			o.abort("internal")
		}
		f.Refuse()
	}()
	limits := c.rule.Load().policy.Limits
	if !c.budgets.begin(limits.Rate) {
		o.deny("rate_exhausted", "connections are begun faster than the policy's rate")
		return
	}
	if !c.enter(o, limits.Conns) {
		o.deny("conns_exhausted", fmt.Sprintf("%d connections are open", limits.Conns))
		return
	}
	defer c.leave(o)
	if f.Dst.Port() == dnsPort {
		if box := o.accept(f); box != nil {
			i.questions(box)
			box.Finish()
		}
		return
	}
	if !o.judge(c.rule.Load()) {
		return
	}
	switch entry, _ := o.current(); entry.Mode {
	case rules.HTTP:
		o.http(f)
	case rules.Splice, rules.TCP:
		o.tunnel(f)
	default:
		o.deny("mode_unknown", "this build cannot carry the connection as the policy says")
	}
}

// enter counts o among the open connections if there is room. It comes before o
// is judged: so a change of the policy finds it, or is what it is judged by.
func (c *Cell) enter(o *conn, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= limit {
		return false
	}
	c.conns[o] = struct{}{}
	return true
}

func (c *Cell) leave(o *conn) {
	c.mu.Lock()
	delete(c.conns, o)
	c.mu.Unlock()
	o.end("")
	if o.place {
		c.cfg.Room.Give()
	}
}

// judge finds the name and asks the policy about it. A denial is told.
func (o *conn) judge(r *ruling) bool {
	a := o.dst.Addr()
	plan := o.cell.cfg.Wire.Addresses
	switch name, _, ok := o.cell.names.Lookup(a); {
	case ok:
		o.name = name
	case a == plan.Gateway4, a == plan.Gateway6, a == plan.Box4, a == plan.Box6:
		o.deny("address_self", "it is an address of the wire itself")
		return false
	case synth.Contains(a):
		o.deny("address_unknown", "no name that was asked for has this address")
		return false
	}
	entry, v := o.ask(r)
	if entry == nil {
		o.denied(v)
		return false
	}
	o.mu.Lock()
	o.entry, o.verdict = entry, v
	o.mu.Unlock()
	if now := o.cell.rule.Load(); now != r { // it changed meanwhile, and did not find o judged
		o.judgeAgain(now)
	}
	if !o.cell.budgets.rate(v.Rule, v.Budget.Rate) {
		o.deny("rate_exhausted", "connections are begun faster than the entry's rate")
		return false
	}
	return true
}

// current returns the entry that allows the connection, and its verdict.
func (o *conn) current() (*rules.Host, rules.Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entry, o.verdict
}

func (o *conn) ask(r *ruling) (*rules.Host, rules.Verdict) {
	if o.name != "" {
		return r.policy.Host(o.name, o.dst.Port())
	}
	return r.policy.CIDR(o.dst)
}

// judgeAgain resets the connection if a new policy does not allow it as it is.
func (o *conn) judgeAgain(r *ruling) {
	if !o.still(r) {
		o.abort("policy_changed")
	}
}

// still judges the connection and its last request by another policy. One lock
// is held throughout, as where a request is judged: so the request is judged by
// the entry that is put in place here, or is found here.
func (o *conn) still(r *ruling) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.entry == nil {
		return true // not judged yet: it will be by the new policy
	}
	now, v := o.ask(r)
	if now == nil || now.Mode != o.entry.Mode {
		return false
	}
	var ruled rules.Verdict // of the request, if a rule below the entry gives it
	if o.request != nil {
		switch asked := now.Request(*o.request); {
		case !asked.Allow:
			return false
		case asked.Rule != v.Rule:
			ruled = asked
		}
	}
	if o.addr.IsValid() && !now.Address(r.dialer.Special(), netip.AddrPortFrom(o.addr, o.dst.Port())).Allow {
		return false
	}
	o.entry, o.verdict, o.ruled = now, v, ruled
	return true
}

// noRoom is the code for a gateway that has no descriptor for one more connection.
const noRoom dial.Code = "gateway_full"

func errNoRoom() error {
	return &dial.Error{Code: noRoom, Err: errors.New("the gateway has no room for one more connection of this box now")}
}

// takePlace takes a place for the connection's way to the world, until it leaves. It
// is for the goroutine that carries the connection.
func (o *conn) takePlace() bool {
	if o.place || o.cell.cfg.Room == nil {
		return true
	}
	o.place = o.cell.cfg.Room.Take()
	return o.place
}

// connect dials the upstream.
func (o *conn) connect() (*net.TCPConn, error) {
	select {
	case o.cell.dialing <- struct{}{}:
		defer func() { <-o.cell.dialing }()
	case <-o.ctx.Done():
		return nil, o.ctx.Err()
	}
	if !o.takePlace() {
		return nil, errNoRoom()
	}
	entry, _ := o.current()
	up, at, err := o.cell.rule.Load().dialer.Dial(o.ctx, dial.Target{Name: o.name, Addr: o.dst.Addr(), Port: o.dst.Port(), Entry: entry})
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return nil, errNoRoom()
	}
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.code != "" {
		_ = up.Close()
		return nil, context.Canceled
	}
	o.up, o.addr = up, at.Addr()
	return up, nil
}

// accept completes the handshake with the box; nil if that fails.
func (o *conn) accept(f *link.Flow) *link.Conn {
	box, err := f.Accept()
	if err != nil {
		o.end("box_gone")
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.code != "" {
		box.Abort()
		return nil
	}
	o.box = box
	wait := o.cell.idleFor()
	o.idle = time.AfterFunc(wait, o.tired)
	return box
}

// idleFor is for how long a connection may stand on which nothing moves.
func (c *Cell) idleFor() time.Duration {
	return cmp.Or(c.rule.Load().policy.Limits.Idle, c.cfg.Timeouts.Idle)
}

// tired ends the connection if nothing was passed on for long.
func (o *conn) tired() {
	wait := o.cell.idleFor()
	quiet := time.Since(o.begin) - time.Duration(o.moved.Load())
	if quiet >= wait {
		if entry, _ := o.current(); entry != nil && entry.Mode != rules.HTTP { // there it is how clients leave connections
			o.denied(rules.Verdict{Code: "idle", Reason: fmt.Sprintf("no byte moved on it for %s; it was reset", wait), Fix: "idle: TIME in limits of a policy"})
		}
		o.abort("idle")
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.code == "" {
		o.idle.Reset(wait - quiet)
	}
}

// abort resets both sides, if the connection has not ended.
func (o *conn) abort(code string) {
	if !o.end(code) {
		return
	}
	o.stop()
	o.mu.Lock()
	box, up := o.box, o.up
	o.mu.Unlock()
	if box != nil {
		box.Abort()
	}
	if up != nil {
		_ = up.SetLinger(0)
		_ = up.Close()
	}
}

// end notes why the connection ended; the first reason stays. It reports
// whether this is the first.
func (o *conn) end(code string) bool {
	o.mu.Lock()
	first := o.code == ""
	if first {
		o.code = code
		if code == "" {
			o.code = "done"
		}
	}
	if o.idle != nil {
		o.idle.Stop()
	}
	told := o.entry != nil && o.box != nil && first
	e := o.event(event.Close)
	o.mu.Unlock()
	if told {
		e.Code, e.TX, e.RX, e.MS = o.code, o.tx.Load(), o.rx.Load(), time.Since(o.begin).Milliseconds()
		o.cell.emit(e)
	}
	return first
}

// isOpen reports whether the connection is allowed, and was not ended.
func (o *conn) isOpen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.code == "" && (o.entry != nil || o.box != nil)
}

// why returns the reason for which the connection ended.
func (o *conn) why() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.code
}

// event begins an event about the connection; o.mu must be held.
func (o *conn) event(kind string) event.Event {
	e := event.Event{Conn: o.id, Kind: kind, Name: string(o.name), Port: o.dst.Port(), Addr: o.dst.Addr().String(), Rule: o.verdict.Rule}
	if o.addr.IsValid() {
		e.Addr = o.addr.String()
	}
	if o.entry != nil {
		e.Mode = string(o.entry.Mode)
	}
	return e
}

func (o *conn) deny(code, reason string) {
	o.denied(rules.Verdict{Code: rules.Code(code), Reason: reason})
}

// denied tells that the connection is not allowed.
func (o *conn) denied(v rules.Verdict) {
	o.mu.Lock()
	e := o.event(event.Connect)
	o.mu.Unlock()
	e.Decision, e.Code, e.Reason, e.Fix = event.Deny, string(v.Code), v.Reason, v.Fix
	if v.Rule != "" {
		e.Rule = v.Rule
	}
	o.cell.emit(e)
}

// pass notes bytes that are about to be passed on, and reports whether the
// budgets have room for them. If not, the connection ends.
func (o *conn) pass(tx, rx int64) bool {
	o.mu.Lock()
	v, ruled := o.verdict, o.ruled
	o.mu.Unlock()
	c := o.cell
	limits := c.rule.Load().policy.Limits
	bounds := [3]ledger.Bound{
		{Sent: limits.TxBytes, Received: limits.RxBytes},
		{Rule: v.Rule, Sent: v.Budget.TxBytes, Received: v.Budget.RxBytes},
		{Rule: ruled.Rule, Sent: ruled.Budget.TxBytes, Received: ruled.Budget.RxBytes},
	}
	n := len(bounds)
	if ruled.Rule == "" { // which is none
		n--
	}
	switch over := c.budgets.ledger.SpendAll(tx, rx, bounds[:n]...); {
	case over == 0 && tx > 0:
		o.overdrawn("tx_exhausted", "the policy's bytes to send are used up")
		return false
	case over == 0:
		o.overdrawn("rx_exhausted", "the policy's bytes to receive are used up")
		return false
	case over > 0:
		o.overdrawn("bytes_exhausted", "the bytes of this entry are used up")
		return false
	}
	c.tx.Add(tx)
	c.rx.Add(rx)
	o.tx.Add(tx)
	o.rx.Add(rx)
	o.moved.Store(int64(time.Since(o.begin)))
	return true
}

func (o *conn) overdrawn(code, reason string) {
	o.deny(code, reason)
	o.abort(code)
}
