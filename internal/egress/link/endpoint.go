package link

import (
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// endpoint is the stack's view of the wire: it has no goroutine and no buffer.
type endpoint struct {
	link *Link

	mu sync.RWMutex
	to stack.NetworkDispatcher
}

func (e *endpoint) deliver(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	e.mu.RLock()
	to := e.to
	e.mu.RUnlock()
	if to != nil {
		to.DeliverNetworkPacket(protocol, pkt)
	}
}

// WritePackets sends packets of the stack to the box.
func (e *endpoint) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range list.AsSlice() {
		version := 4
		if pkt.NetworkProtocolNumber == header.IPv6ProtocolNumber {
			version = 6
		}
		// The stack holds a connection's lock while it greets the box, and its
		// processors try that lock in a loop once the box has answered.
		h := pkt.TransportHeader().Slice()
		greets := len(h) >= header.TCPMinimumSize && header.TCP(h).Flags().Contains(header.TCPFlagSyn)
		if !e.link.out.write(pkt.AsSlices(), version, greets) {
			return i, &tcpip.ErrNoBufferSpace{}
		}
	}
	return list.Len(), nil
}

// Attach is called with nil when the stack ends.
func (e *endpoint) Attach(to stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.to = to
}

// IsAttached reports whether the stack lives.
func (e *endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.to != nil
}

// Capabilities: what comes in is never checked, since the wire is memory; what
// goes out has checksums if the box's kernel looks at them.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	c := stack.CapabilityRXChecksumOffload
	if e.link.cfg.Offload {
		c |= stack.CapabilityTXChecksumOffload
	}
	return c
}

// MTU returns the size of the largest packet in bytes.
func (e *endpoint) MTU() uint32 { return MTU }

// SetMTU does nothing: it is fixed.
func (e *endpoint) SetMTU(uint32) {}

// MaxHeaderLength returns 0: the wire carries bare IP packets.
func (e *endpoint) MaxHeaderLength() uint16 { return 0 }

// LinkAddress returns none: the wire has two ends.
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress does nothing.
func (e *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Wait does nothing: the endpoint has no goroutine.
func (e *endpoint) Wait() {}

// ARPHardwareType returns none: nobody is asked for an Ethernet address.
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader does nothing: there is none.
func (e *endpoint) AddHeader(*stack.PacketBuffer) {}

// ParseHeader has nothing to parse.
func (e *endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close does nothing: the wire outlives its stacks.
func (e *endpoint) Close() {}

// SetOnCloseAction does nothing.
func (e *endpoint) SetOnCloseAction(func()) {}
