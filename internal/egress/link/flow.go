package link

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Flow is a TCP connection that the box has begun and that is not yet accepted.
type Flow struct {
	Src, Dst netip.AddrPort // of the box, and what the box asked for

	owner   *netstack
	mu      sync.Mutex
	request *tcp.ForwarderRequest // nil once it is accepted or refused
}

func newFlow(n *netstack, r *tcp.ForwarderRequest) *Flow {
	id := r.ID()
	return &Flow{Src: addrPort(id.RemoteAddress, id.RemotePort), Dst: addrPort(id.LocalAddress, id.LocalPort), owner: n, request: r}
}

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(ip, port)
}

// Accept completes the handshake. It fails when the box does not answer, and
// when the flow was accepted or refused before.
func (f *Flow) Accept() (*Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.request == nil {
		return nil, fmt.Errorf("cannot accept a connection twice")
	}
	r := f.request
	f.request = nil
	if !f.owner.greet() {
		r.Complete(true)
		f.owner.flows.Add(-1)
		return nil, fmt.Errorf("cannot accept a connection of the box: the wire has ended")
	}
	defer f.owner.greeting.Add(-1)
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	if err != nil {
		r.Complete(true)
		f.owner.flows.Add(-1)
		return nil, fmt.Errorf("cannot accept a connection of the box: %v", err)
	}
	r.Complete(false)
	size := share(f.owner.flows.Load())
	ep.SocketOptions().SetReceiveBufferSize(size, true)
	ep.SocketOptions().SetSendBufferSize(size, true)
	return &Conn{TCPConn: gonet.NewTCPConn(&queue, ep), end: ep, owner: f.owner}, nil
}

// Refuse answers with a reset. Once the flow is accepted or refused it does nothing.
func (f *Flow) Refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.request == nil {
		return
	}
	f.request.Complete(true)
	f.request = nil
	f.owner.flows.Add(-1)
}

// settle refuses what its handler left, also by a panic, which ends here: it is
// counted as a failure of the stack.
func (f *Flow) settle() {
	if p := recover(); p != nil {
		f.owner.link.counts.drop(DropStack)
	}
	f.Refuse()
}

// Conn is an accepted connection: the box's side of it.
type Conn struct {
	*gonet.TCPConn
	end   tcpip.Endpoint
	owner *netstack
	once  sync.Once
}

var _ net.Conn = (*Conn)(nil)

// Finish ends the connection once the box has taken all that was written, or it
// was aborted. Until then it counts as open, for who counts: what waits to be
// taken is held here, and a box that takes nothing must not have more of it than
// its open connections.
func (c *Conn) Finish() {
	_ = c.CloseWrite()
	for wait := time.Millisecond; !c.taken(); wait = min(2*wait, 250*time.Millisecond) {
		<-time.After(wait)
	}
	_ = c.Close()
}

// taken reports whether the box has acknowledged the end of what was sent, and so
// all before it, or the connection is no more.
func (c *Conn) taken() bool {
	switch tcp.EndpointState(c.end.State()) {
	case tcp.StateFinWait1, tcp.StateClosing, tcp.StateLastAck, tcp.StateEstablished, tcp.StateCloseWait:
		return false
	}
	return true
}

// Close ends the connection at once for who counts; what was written is still sent.
func (c *Conn) Close() error {
	c.once.Do(func() { c.owner.flows.Add(-1) })
	return c.TCPConn.Close()
}

// Abort ends the connection with a reset; what was not yet sent is lost.
func (c *Conn) Abort() {
	c.end.Abort()
	_ = c.Close()
}
