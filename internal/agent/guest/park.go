package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// Times of Park.
const (
	parkGrace = 2 * time.Second // for calls that cannot go on afterwards
	parkTime  = 5 * time.Second // for the agent to close its end
	mostSlept = 365 * 24 * time.Hour
)

// entropyBytes is what a copy gets to become another box.
const entropyBytes = 64

var errParked = errors.New("reach agent: the box is being copied")

// gate holds calls while the guest is parked, and knows which are under way.
type gate struct {
	mu    sync.Mutex
	shut  chan struct{} // closed by Unpark; nil while it is open
	short int           // calls under way that cannot be resumed
	quiet chan struct{} // closed when short becomes 0; nil if nobody waits
}

// pass waits until calls may go. What it returns is to be called at the call's
// end.
func (g *gate) pass(ctx context.Context, ended <-chan struct{}, short bool) (func(), error) {
	for {
		g.mu.Lock()
		shut := g.shut
		if shut == nil {
			if short {
				g.short++
			}
			g.mu.Unlock()
			return func() {
				if short {
					g.done()
				}
			}, nil
		}
		g.mu.Unlock()
		select {
		case <-shut:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ended:
			return nil, errClosed
		}
	}
}

func (g *gate) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.short--; g.short == 0 && g.quiet != nil {
		close(g.quiet)
		g.quiet = nil
	}
}

// close shuts the gate, and returns a channel that is closed when no short call
// is under way; it is nil if the gate was shut.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		return nil
	}
	g.shut = make(chan struct{})
	quiet := make(chan struct{})
	if g.short == 0 {
		close(quiet)
	} else {
		g.quiet = quiet
	}
	return quiet
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut, g.quiet = nil, nil
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut != nil
}

// Park leaves the agent without a stream, as a copy of the box's memory needs it:
// it holds the box's clock (see Hold), closes the connection, and returns when the
// agent has closed its end, too. New calls wait until Unpark. Of those under way
// Follow, RunCell and Watch go on then, without loss, save that a Watch tells of
// changes that were lost; Start and what else may be asked twice is asked again.
// All others have 2 s to end, and fail as Unavailable then; ports that were
// dialled are cut. If Park fails, the guest is as before but for what was cut.
// One that is parked is Conflict.
func (g *Guest) Park(ctx context.Context) error {
	const op = "park agent"
	quiet := g.link.gate.close()
	if quiet == nil {
		return box.Errorf(box.Conflict, op, "cannot %s: it is parked already", op)
	}
	grace := time.NewTimer(parkGrace)
	defer grace.Stop()
	select {
	case <-quiet:
	case <-grace.C:
	case <-ctx.Done():
		g.Unpark()
		return failed(ctx, op, ctx.Err())
	}
	err := g.hold(context.WithValue(ctx, pastKey{}, true), op)
	if err == nil {
		err = g.link.park(ctx, op)
	}
	if err != nil {
		g.Unpark()
	}
	return err
}

// Unpark lets calls go on. It does nothing if the guest is not parked.
func (g *Guest) Unpark() { g.link.gate.open() }

// pastKey marks a call that the gate does not hold.
type pastKey struct{}

// Hold implements box.Renewer.
func (g *Guest) Hold(ctx context.Context) error {
	const op = "hold clock"
	leave, err := g.enter(ctx, op, true)
	if err != nil {
		return err
	}
	defer leave()
	return g.hold(ctx, op)
}

func (g *Guest) hold(ctx context.Context, op string) error {
	_, _, err := exchange(ctx, g, op, g.machine.Hold, &agentpb.HoldRequest{})
	return agentLacks(err, op)
}

// Renew implements box.Renewer.
func (g *Guest) Renew(ctx context.Context, r box.Renewal) error {
	const op = "renew box"
	if r.Slept < 0 || r.Slept > mostSlept {
		return refused(op, "it cannot have slept for %v", r.Slept)
	}
	req := &agentpb.RenewRequest{SleptMicros: uint64(r.Slept.Microseconds()), Copy: r.Copy}
	if r.Copy {
		req.Entropy = make([]byte, entropyBytes)
		rand.Read(req.Entropy)
	}
	// Not twice: what it slept would count twice.
	_, err := call(ctx, g, op, g.machine.Renew, req)
	return agentLacks(err, op)
}

// agentLacks says of an agent of an earlier version that it has no such call.
func agentLacks(err error, op string) error {
	if box.KindOf(err) != box.Unsupported {
		return err
	}
	return box.Errorf(box.Unsupported, op, "cannot %s: the box's agent is older than that", op).
		WithHint("the box was made by an earlier version of Sunaba: make a new one")
}

// park closes the connection, from our side first, and waits for the agent's.
func (l *link) park(ctx context.Context, op string) error {
	select {
	case <-l.turn: // whoever dials has the connection then
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return failed(ctx, op, ctx.Err())
	}
	c := l.now.Load()
	if c == nil || c.http.Err() != nil {
		return nil
	}
	c.parked.Store(true)
	defer c.http.Close()
	half, ok := c.wire.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return nil // no more is to be learnt of its other end
	}
	late := time.NewTimer(parkTime)
	defer late.Stop()
	select {
	case <-c.wire.ended:
		return nil
	case <-late.C:
		return box.Errorf(box.Unavailable, op, "cannot %s: it did not close its stream within %v", op, parkTime)
	case <-ctx.Done():
		return failed(ctx, op, ctx.Err())
	}
}

// parked reports whether the call failed because the guest was parked, and not
// by what the agent said.
func (t *trip) parked(err error) bool {
	var told errLie
	var made *box.Error
	if errors.Is(err, errParked) {
		return true
	}
	if connect.IsWireError(err) || errors.As(err, &told) || errors.As(err, &made) {
		return false
	}
	c := t.conn.Load()
	return c != nil && c.parked.Load()
}

// cutShort is the error of a call that the parking ended.
func cutShort(op string) error {
	e := box.Errorf(box.Unavailable, op, "cannot %s: it is not known whether it was done: %w", op, errParked)
	e.Retry = time.Second
	return e
}

// resumed tells a story to fn by once, and again from where it was whenever
// a parking has cut it.
func resumed[Event any](ctx context.Context, g *Guest, op string, fn func(Event) error, once func(func(Event) error) error) error {
	leave, err := g.enter(ctx, op, false)
	if err != nil {
		return err
	}
	defer leave()
	for {
		var own error
		err := once(func(e Event) error {
			own = fn(e)
			return own
		})
		if own != nil || !errors.Is(err, errParked) {
			return err
		}
		if _, err := g.link.gate.pass(ctx, g.link.ended, false); err != nil {
			return failed(ctx, op, err)
		}
	}
}

// exchange is one question and its answer, past the gate.
func exchange[Req, Res any](ctx context.Context, g *Guest, op string, f method[Req, Res], req *Req) (res *Res, broke bool, err error) {
	t := &trip{began: time.Now()}
	own, cancel := context.WithTimeoutCause(context.WithValue(ctx, tripKey{}, t), g.o.Call, errSilent)
	defer cancel()
	answer, err := f(own, connect.NewRequest(req))
	if err == nil {
		return answer.Msg, false, nil
	}
	if t.parked(err) {
		return nil, true, cutShort(op)
	}
	// The agent's clock may be the first to notice: both have the same deadline.
	if ctx.Err() == nil && (own.Err() != nil || connect.CodeOf(err) == connect.CodeDeadlineExceeded) {
		g.link.doubt(t)
		return nil, false, failed(own, op, errors.Join(errSilent, err))
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented && !connect.IsWireError(err) { // 404: there is no such call
		return nil, false, box.Errorf(box.Unsupported, op, "cannot %s: the box's agent does not know how", op)
	}
	return nil, t.broke(), failed(own, op, err)
}
