// Package guest is the host's end of the agent's protocol: it makes a box.Guest
// out of a byte stream on which somebody in a box answers.
//
// Whoever answers may be lying. The agent is a program in the box, beside code
// that may have taken it over, so what comes from it is treated like any other
// input from there, and a whole kind of trouble is met once, in one place:
//
//   - What it says is checked before anybody acts on it: counts, positions,
//     numbers of processes, names, enumerations, times, MIME types. A path in
//     an answer lies where was asked, or the answer is refused. Archives are
//     read and written anew, so that what leaves here is what was checked.
//   - What it does not say costs a bounded time: each call has a deadline of its
//     own, and a stream that stays without so much as a beat is given up.
//   - How much it says is bounded: bytes and elements of a message, messages of
//     a list, streams at once, what a stream may have on the way (HTTP/2's
//     window), frames that carry nothing.
//   - Its words in errors are shown as text and marked as its own.
//
// So an agent that hangs or lies costs the users of its own box an error, and
// nobody else anything.
package guest

import (
	"context"
	"net"
	"time"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
)

// Options bound what an agent can cost. A field that is zero takes its default.
type Options struct {
	// Call is how long one answer may take: 10 s.
	Call time.Duration
	// Silence is how long an open stream may stay without an event or a beat,
	// and how long the agent may take no byte of what is sent: 15 s, which is
	// three beats.
	Silence time.Duration
	// Calls is how many calls and open streams there may be at once; 0 is 200.
	// Each may have 256 KiB on the way to a slow reader.
	Calls int
}

// Guest implements box.Guest.
type Guest struct {
	o         Options
	link      *link
	slots     chan struct{}
	processes agentpbconnect.ProcessesClient
	files     agentpbconnect.FilesClient
	machine   agentpbconnect.MachineClient
	contexts  agentpbconnect.ContextsClient
}

var (
	_ box.Guest   = (*Guest)(nil)
	_ box.Renewer = (*Guest)(nil)
)

// New returns the guest behind the streams that dial opens, which is usually
// box.Lasting's Agent. It does not dial before the first call, and dials anew
// when the stream has broken. A dial has Options.Call and may have to give up
// when its context ends.
func New(dial func(context.Context) (net.Conn, error), o Options) *Guest {
	if o.Call <= 0 {
		o.Call = 10 * time.Second
	}
	if o.Silence <= 0 {
		o.Silence = 15 * time.Second
	}
	if o.Calls <= 0 {
		o.Calls = 200
	}
	g := &Guest{o: o, slots: make(chan struct{}, o.Calls)}
	g.link = newLink(dial, o)
	options := clientOptions(maxMessage)
	g.processes = agentpbconnect.NewProcessesClient(g.link, baseURL, options...)
	g.files = agentpbconnect.NewFilesClient(g.link, baseURL, options...)
	g.machine = agentpbconnect.NewMachineClient(g.link, baseURL, options...)
	g.contexts = agentpbconnect.NewContextsClient(g.link, baseURL, clientOptions(maxResult)...)
	return g
}

// Close ends all calls and streams. Later ones fail as Unavailable.
func (g *Guest) Close() { g.link.close() }

// baseURL names nobody: a stream has one agent at its other end.
const baseURL = "http://agent"

// What one message may have, in bytes: a mebibyte of data and what is around it.
// A result of a cell comes whole, and may be a large picture.
const (
	maxMessage = 1<<20 + 64<<10
	maxResult  = 4<<20 + 64<<10
)

func clientOptions(most int) []connect.ClientOption {
	return []connect.ClientOption{
		connect.WithReadMaxBytes(most),
		connect.WithCodec(codec{}),
		// Nothing is compressed: a small message stays small.
		connect.WithAcceptCompression("gzip", nil, nil),
	}
}

// enter takes a slot for a call or stream, and waits while the guest is parked;
// the function that it returns gives the slot back. A call is short if it cannot
// be resumed.
func (g *Guest) enter(ctx context.Context, op string, short bool) (func(), error) {
	select {
	case g.slots <- struct{}{}:
		done, err := g.link.gate.pass(ctx, g.link.ended, short)
		if err != nil {
			<-g.slots
			return nil, failed(ctx, op, err)
		}
		return func() { done(); <-g.slots }, nil
	default:
		e := box.Errorf(box.Exhausted, op, "cannot %s: %d calls to this box are under way", op, cap(g.slots))
		e.Retry = time.Second
		return nil, e
	}
}
