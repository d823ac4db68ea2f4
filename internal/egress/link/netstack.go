package link

import (
	"fmt"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	nic = 1
	// maxPending is how many connections of one box may be between their first
	// packet and their acceptance; more are not answered until there is room.
	maxPending = 256
	// bufferSize is what one connection may hold in each direction, in bytes:
	// enough for 400 MB/s where the answer of a busy host takes 2.5 ms.
	bufferSize = 1 << 20
	// When there are many, a new one gets its part of bufferSum. All of 256
	// together then hold 36 MiB in each direction at most.
	bufferSum = 8 << 20
	minBuffer = 32 << 10
)

// share is the buffer of one of n connections, in bytes.
func share(n int64) int64 { return min(bufferSize, max(minBuffer, bufferSum/max(n, 1))) }

// netstack is a TCP/IP stack that believes to be every address in the world.
type netstack struct {
	stack *stack.Stack
	end   *endpoint
	link  *Link
	flows atomic.Int64 // begun and not yet closed

	greeting atomic.Int64 // flows whose handshake is under way
	closing  atomic.Bool
}

func newNetstack(l *Link) (*netstack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	n := &netstack{stack: s, link: l}
	n.end = &endpoint{link: l}
	if err := n.configure(); err != nil {
		s.Destroy()
		return nil, fmt.Errorf("cannot build a TCP/IP stack: %v", err)
	}
	return n, nil
}

func (n *netstack) configure() error {
	s := n.stack
	sack, moderate, delay := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(false), tcpip.TCPDelayEnabled(false)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: bufferSize, Max: bufferSize}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: bufferSize, Max: bufferSize}
	// Nothing of an old connection can still be on a wire without routers; and an
	// end that waits for its box costs memory that nobody counts.
	wait, linger := tcpip.TCPTimeWaitTimeoutOption(time.Second), tcpip.TCPLingerTimeoutOption(5*time.Second)
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &delay, &receive, &send, &wait, &linger} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("option %T: %v", o, err)
		}
	}
	if err := s.CreateNIC(nic, n.end); err != nil {
		return fmt.Errorf("interface: %v", err)
	}
	if err := s.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("promiscuous mode: %v", err)
	}
	if err := s.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("spoofing: %v", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	forward := tcp.NewForwarder(s, bufferSize, maxPending, n.begin)
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, forward.HandlePacket)
	return nil
}

// begin hands a connection that the box begins to the handler.
func (n *netstack) begin(r *tcp.ForwarderRequest) {
	n.flows.Add(1)
	n.link.counts.Flows.Add(1)
	f := newFlow(n, r)
	// Who handles it may fail; its box loses this connection and nothing else.
	defer f.settle()
	n.link.handler.TCP(f)
}

// deliver puts a packet of the box into the stack, which takes over the chunk that it
// was read into; without one the packet is copied.
func (n *netstack) deliver(p packet, chunk *buffer.View) {
	protocol := ipv4.ProtocolNumber
	if p.version == 6 {
		protocol = ipv6.ProtocolNumber
	}
	var payload buffer.Buffer
	if chunk != nil {
		chunk.CapLength(len(p.whole))
		payload = buffer.MakeWithView(chunk)
	} else {
		payload = buffer.MakeWithData(p.whole)
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: payload})
	defer pkt.DecRef()
	n.end.deliver(protocol, pkt)
}

func (n *netstack) busy() bool { return n.flows.Load() > 0 }

// close resets all connections while the wire is still there, and does not wait for
// what the stack has left: a handshake that begins meanwhile ends when the box
// answers, or after minutes.
func (n *netstack) close() {
	n.closing.Store(true)
	n.stack.Close()
	go n.reap()
}

// reap ends what began while the stack was closed, and then the stack.
func (n *netstack) reap() {
	for wait := time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		last := n.greeting.Load() == 0 // none begins any more
		for _, e := range n.stack.RegisteredEndpoints() {
			e.Abort()
		}
		if last {
			break
		}
		<-time.After(wait)
	}
	n.stack.Wait()
}

// greet notes that a handshake begins, or reports that none may.
func (n *netstack) greet() bool {
	n.greeting.Add(1) // before it is asked: reap sees it, or it sees that the stack is closed
	if n.closing.Load() {
		n.greeting.Add(-1)
		return false
	}
	return true
}
