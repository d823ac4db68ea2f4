package link

import (
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// What is let through is, to the stack's own reader, a whole packet of TCP or a
// datagram to port 53, from the box, without options, and no part of one.
func FuzzPacket(f *testing.F) {
	f.Add(ip4(protoTCP, "8.8.8.8", syn(443)))
	f.Add(ip4(protoUDP, "8.8.8.8", datagram(53, "?")))
	f.Add(ip6(protoTCP, "2001:4860::1", syn(443)))
	f.Add(ip6(protoUDP, "2001:4860::1", datagram(53, "?")))
	plan := Plan()
	f.Fuzz(func(t *testing.T, b []byte) {
		p, drop := classify(b, plan)
		if drop != "" {
			return
		}
		var rest []byte
		var protocol uint8
		if p.version == 4 {
			h := header.IPv4(p.whole)
			if !h.IsValid(len(p.whole)) || h.SourceAddress().String() != plan.Box4.String() || h.More() || h.FragmentOffset() != 0 || len(h.Options()) != 0 || h.DestinationAddress().String() != p.dst.Addr().String() {
				t.Fatalf("the stack reads another packet: %x", b)
			}
			rest, protocol = h.Payload(), h.Protocol()
		} else {
			h := header.IPv6(p.whole)
			if !h.IsValid(len(p.whole)) || h.SourceAddress().String() != plan.Box6.String() || h.DestinationAddress().String() != p.dst.Addr().String() {
				t.Fatalf("the stack reads another packet: %x", b)
			}
			rest, protocol = h.Payload(), h.NextHeader()
		}
		switch {
		case p.dns && protocol == uint8(header.UDPProtocolNumber) && header.UDP(rest).DestinationPort() == 53:
			if answer := reply(p, []byte("answer")); len(answer) != len(p.whole)-len(p.payload)+6 {
				t.Fatalf("the answer is %x", answer)
			}
		case !p.dns && protocol == uint8(header.TCPProtocolNumber) && header.TCP(rest).DestinationPort() == p.dst.Port():
		default:
			t.Fatalf("the stack reads another packet: %x", b)
		}
	})
}
