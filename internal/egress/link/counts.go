package link

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Drop is why a packet was dropped.
type Drop string

const (
	DropMalformed Drop = "malformed"   // no whole IP packet, or lengths that contradict
	DropSource    Drop = "source"      // not from one of the box's addresses
	DropDest      Drop = "destination" // multicast, broadcast, loopback, unspecified, or the box itself
	DropFragment  Drop = "fragment"    // a part of a packet
	DropOptions   Drop = "options"     // IPv4 options or IPv6 extension headers
	DropICMP      Drop = "icmp"        // ICMP of either version
	DropUDP       Drop = "udp"         // any port but 53: QUIC, NTP, mDNS, DNS over QUIC ...
	DropProtocol  Drop = "protocol"    // neither TCP nor UDP nor ICMP
	DropFull      Drop = "full"        // to the box: it does not take its packets
	DropStack     Drop = "stack"       // no stack could be built, or it failed
)

// Counts are the counters of a wire.
type Counts struct {
	Packets, Bytes, DNS, Stacks, Flows atomic.Int64

	mu      sync.Mutex
	dropped map[Drop]int64
}

// Snapshot is what a wire has counted. Bytes are those of TCP packets from the
// box; Retransmits and Timeouts those of the stack that is there, to the box.
type Snapshot struct {
	Packets, Bytes, DNS, Stacks, Flows int64
	Retransmits, Timeouts              int64
	Dropped                            map[Drop]int64
}

func (c *Counts) drop(why Drop) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped == nil {
		c.dropped = map[Drop]int64{}
	}
	c.dropped[why]++
}

func (c *Counts) snapshot() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Snapshot{Packets: c.Packets.Load(), Bytes: c.Bytes.Load(), DNS: c.DNS.Load(), Stacks: c.Stacks.Load(),
		Flows: c.Flows.Load(), Dropped: maps.Clone(c.dropped)}
}
