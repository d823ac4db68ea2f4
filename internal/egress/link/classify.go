package link

import (
	"encoding/binary"
	"net/netip"
)

// IP protocol numbers, https://www.iana.org/assignments/protocol-numbers.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// packet is what was read of one packet from the box.
type packet struct {
	version  int
	whole    []byte // from the IP header to the end that the header says
	dns      bool   // a UDP datagram to port 53; else TCP
	src, dst netip.AddrPort
	payload  []byte // of a UDP datagram
}

// classify looks at one packet, and says why it is dropped if it is. Everything
// that is not plain TCP or a DNS question is.
func classify(b []byte, plan Addresses) (packet, Drop) {
	if len(b) == 0 {
		return packet{}, DropMalformed
	}
	switch b[0] >> 4 {
	case 4:
		return classify4(b, plan)
	case 6:
		return classify6(b, plan)
	}
	return packet{}, DropMalformed
}

func classify4(b []byte, plan Addresses) (packet, Drop) {
	if len(b) < 20 {
		return packet{}, DropMalformed
	}
	total := int(binary.BigEndian.Uint16(b[2:]))
	if total < 20 || total > len(b) {
		return packet{}, DropMalformed
	}
	if b[0]&0xf != 5 {
		return packet{}, DropOptions
	}
	if binary.BigEndian.Uint16(b[6:])&0xbfff != 0 { // all but "don't fragment"
		return packet{}, DropFragment
	}
	src, dst := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	if src != plan.Box4 {
		return packet{}, DropSource
	}
	if dst == src || !unicast(dst) || dst == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return packet{}, DropDest
	}
	return transport(packet{version: 4, whole: b[:total]}, b[9], src, dst, b[20:total])
}

func classify6(b []byte, plan Addresses) (packet, Drop) {
	if len(b) < 40 {
		return packet{}, DropMalformed
	}
	total := 40 + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return packet{}, DropMalformed
	}
	src, dst := netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	if src != plan.Box6 {
		return packet{}, DropSource
	}
	if dst == src || !unicast(dst) || dst.Is4In6() {
		return packet{}, DropDest
	}
	switch b[6] {
	case 0, 43, 50, 51, 60, 135, 139, 140, 253, 254: // extension headers, RFC 7045
		return packet{}, DropOptions
	case 44:
		return packet{}, DropFragment
	}
	return transport(packet{version: 6, whole: b[:total]}, b[6], src, dst, b[40:total])
}

func unicast(a netip.Addr) bool {
	return !a.IsMulticast() && !a.IsUnspecified() && !a.IsLoopback()
}

func transport(p packet, proto byte, src, dst netip.Addr, rest []byte) (packet, Drop) {
	switch proto {
	case protoTCP:
		if len(rest) < 20 || int(rest[12]>>4) < 5 || int(rest[12]>>4)*4 > len(rest) {
			return packet{}, DropMalformed
		}
		p.src, p.dst = ports(src, dst, rest)
		if p.src.Port() == 0 || p.dst.Port() == 0 {
			return packet{}, DropMalformed
		}
		return p, ""
	case protoUDP:
		if len(rest) < 8 {
			return packet{}, DropMalformed
		}
		p.src, p.dst = ports(src, dst, rest)
		if p.dst.Port() != 53 {
			return packet{}, DropUDP
		}
		if n := int(binary.BigEndian.Uint16(rest[4:])); n != len(rest) || p.src.Port() == 0 {
			return packet{}, DropMalformed
		}
		p.dns, p.payload = true, rest[8:]
		return p, ""
	case protoICMP, protoICMPv6:
		return packet{}, DropICMP
	}
	return packet{}, DropProtocol
}

func ports(src, dst netip.Addr, b []byte) (from, to netip.AddrPort) {
	return netip.AddrPortFrom(src, binary.BigEndian.Uint16(b)), netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
}

// reply makes the IP packet that answers the datagram p with body.
func reply(p packet, body []byte) []byte {
	head := 20
	if p.version == 6 {
		head = 40
	}
	b := make([]byte, head+8+len(body))
	n := len(body) + 8
	from, to := p.dst.Addr().AsSlice(), p.src.Addr().AsSlice()
	if p.version == 4 {
		b[0], b[8], b[9] = 0x45, 64, protoUDP
		binary.BigEndian.PutUint16(b[2:], uint16(head+n))
		b[6] = 0x40 // don't fragment
		copy(b[12:], from)
		copy(b[16:], to)
		binary.BigEndian.PutUint16(b[10:], ^sum(0, b[:20]))
	} else {
		b[0], b[6], b[7] = 0x60, protoUDP, 64
		binary.BigEndian.PutUint16(b[4:], uint16(n))
		copy(b[8:], from)
		copy(b[24:], to)
	}
	u := b[head:]
	binary.BigEndian.PutUint16(u, p.dst.Port())
	binary.BigEndian.PutUint16(u[2:], p.src.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(n))
	copy(u[8:], body)
	check := ^sum(add(sum(sum(protoUDP, from), to), uint16(n)), u)
	if check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(u[6:], check)
	return b
}

// sum adds b to the one's complement sum s (RFC 1071).
func sum(s uint16, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		s = add(s, binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s = add(s, uint16(b[0])<<8)
	}
	return s
}

func add(a, b uint16) uint16 {
	s := uint32(a) + uint32(b)
	return uint16(s) + uint16(s>>16)
}
