package box

import (
	"context"
	"os"
)

// LinkKind says what is read from the host's end of a link, and what may be
// written to it. Every read gives one packet, and every write takes one.
type LinkKind string

// Link kinds.
const (
	// LinkSeqpacket is a socket of messages, each an IP packet. The checksums of TCP
	// and UDP are not filled in, and need not be.
	LinkSeqpacket LinkKind = "seqpacket"
	// LinkTUN is a TUN device without a header before its IP packets. Checksums are
	// filled in, and have to be.
	LinkTUN LinkKind = "tun"
	// LinkPacket is a packet socket (packet(7), SOCK_DGRAM) on the other end of the
	// box's Ethernet interface: one IP packet each, to be sent to LinkBoxMAC by the
	// interface that getsockname(2) tells. Nobody asks for hardware addresses: the box
	// has been told. Checksums are not filled in by the box's kernel, and have to be by
	// who writes; a packet may be longer than the MTU, up to what IP can say.
	LinkPacket LinkKind = "packet"
)

// Addresses of the two ends of every link. They are the same for all boxes, since
// no packet of a link ever comes to another place. The box has no other route.
const (
	LinkMTU        = 65520 // bytes of an IP packet
	LinkGateway4   = "198.18.0.1"
	LinkBox4       = "198.18.0.2" // of a network of 30 bits
	LinkGateway6   = "fd53:756e:6162:6100::1"
	LinkBox6       = "fd53:756e:6162:6100::2" // of a network of 126 bits
	LinkGatewayMAC = "02:53:75:6e:00:01"
	LinkBoxMAC     = "02:53:75:6e:00:02"
)

// Link is the host's end of a box's network interface.
type Link struct {
	File *os.File // the caller's
	Kind LinkKind
}

// Linked is implemented by boxes that can have a network.
type Linked interface {
	// Link returns a further descriptor of the host's end, of a box whose mode is
	// NetAllowlist; the box's first process keeps one. What is sent while nobody
	// reads is dropped. A box without a link is Unsupported.
	Link(context.Context) (Link, error)
}
