// Package link is a box's one way out, as packets. One end of a wire lies in
// the box and is hostile; this is the other.
//
// What comes in is looked at before any stack sees it: TCP goes into a TCP/IP
// stack in user space (gVisor's), a DNS question over UDP is answered from here
// with no stack at all, and everything else is counted and dropped: other UDP,
// ICMP, fragments, options, extension headers, foreign source addresses. There
// is no route from this stack to anywhere; a connection that it takes is a
// [Flow], and where that leads is not known here.
//
// A wire that nobody talks on costs a goroutine: the stack is built for the
// first TCP packet and dropped when nothing has passed for a while.
package link

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
)

// Kind says what the descriptor is.
type Kind string

const (
	// Seqpacket is one end of a socketpair(AF_UNIX, SOCK_SEQPACKET): one IP
	// packet a message. The box's kernel at the other end is gVisor's.
	Seqpacket Kind = "seqpacket"
	// TUN is a TUN device with IFF_NO_PI: one IP packet a read.
	TUN Kind = "tun"
	// Packet is an AF_PACKET socket of type SOCK_DGRAM, bound to one end of a
	// veth pair, whose other end (with the address [Config.PeerMAC]) is in the box.
	Packet Kind = "packet"
)

// MTU is the size that both ends use, in bytes: large packets are what makes a
// stack in user space fast.
const MTU = 65520

// idleAfter is how long a stack with no connection and no packet is kept.
const idleAfter = 30 * time.Second

// Addresses are the plan of every wire; each box has a world of its own, so all
// boxes have the same.
type Addresses struct {
	Gateway4, Gateway6 netip.Addr // answers DNS, and nothing else
	Box4, Box6         netip.Addr // the only source addresses
}

// Plan returns the addresses that boxes get. Those of version 4 are from the
// range for benchmarks (RFC 2544), where the synthetic addresses are too.
func Plan() Addresses {
	return Addresses{
		Gateway4: netip.AddrFrom4([4]byte{198, 18, 0, 1}),
		Box4:     netip.AddrFrom4([4]byte{198, 18, 0, 2}),
		Gateway6: netip.MustParseAddr("fd53:756e:6162:6100::1"),
		Box6:     netip.MustParseAddr("fd53:756e:6162:6100::2"),
	}
}

// Config is a wire.
type Config struct {
	// FD is the descriptor. Open takes it over, and makes it non-blocking.
	FD   int
	Kind Kind
	// Offload says that the box's kernel neither makes nor checks TCP checksums.
	// They are never checked here: the wire is memory.
	Offload bool
	// PeerMAC and Interface are the box's Ethernet address and the number of
	// our interface. For Packet only.
	PeerMAC   [6]byte
	Interface int
	Addresses Addresses
	// Idle replaces how long an unused stack is kept; 0 means 30 s.
	Idle time.Duration
}

// Handler is who judges what comes over a wire. Its methods are called
// concurrently, and must not keep what they are given.
type Handler interface {
	// DNS answers one message that was sent to port 53 of any address. It must
	// not block. Nil means no answer.
	DNS(query []byte) []byte
	// TCP is called in a goroutine of its own for each connection that the box
	// begins, and must call Accept or Refuse once.
	TCP(*Flow)
}

// Link is one wire. Its methods may be called concurrently.
type Link struct {
	cfg     Config
	file    *os.File
	raw     syscall.RawConn
	handler Handler
	counts  Counts

	// active is when the last TCP packet came, in nanoseconds since start.
	active atomic.Int64
	start  time.Time

	mu     sync.Mutex
	stack  *netstack // nil until the first TCP packet, and after it was idle
	closed bool
	idle   *time.Timer
	out    sender
}

// Open takes over cfg.FD, also when it fails.
func Open(cfg Config, h Handler) (*Link, error) {
	if err := unix.SetNonblock(cfg.FD, true); err != nil {
		_ = unix.Close(cfg.FD)
		return nil, fmt.Errorf("cannot make the wire non-blocking: %w", err)
	}
	if cfg.Kind != TUN { // more room than a few packets; what the host allows is enough to work
		_ = unix.SetsockoptInt(cfg.FD, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
		_ = unix.SetsockoptInt(cfg.FD, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	}
	if cfg.Kind == Packet {
		// An interface that has just come up has a queue that loses everything,
		// for as long as the kernel takes to notice.
		if err := unix.SetsockoptInt(cfg.FD, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			_ = unix.Close(cfg.FD)
			return nil, fmt.Errorf("cannot pass by the interface's queue: %w", err)
		}
	}
	if cfg.Idle == 0 {
		cfg.Idle = idleAfter
	}
	f := os.NewFile(uintptr(cfg.FD), "wire")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot watch the wire: %w", err)
	}
	l := &Link{cfg: cfg, file: f, raw: raw, handler: h, start: time.Now()}
	l.out.link = l
	return l, nil
}

// Run reads packets until the box's end is closed (nil), ctx ends (its error)
// or Close is called (nil).
func (l *Link) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	defer l.Close()
	err := l.read()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if err == nil || closed {
		return nil
	}
	return fmt.Errorf("cannot read packets: %w", err)
}

// Close ends the wire and resets its connections.
func (l *Link) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	s := l.stack
	l.stack = nil
	if l.idle != nil {
		l.idle.Stop()
	}
	l.mu.Unlock()
	if s != nil {
		s.close()
	}
	if again {
		return nil
	}
	return l.file.Close()
}

// Active reports whether the wire has a stack.
func (l *Link) Active() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stack != nil
}

// Counts returns the counters of the wire.
func (l *Link) Counts() Snapshot {
	out := l.counts.snapshot()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stack != nil {
		t := l.stack.stack.Stats().TCP
		out.Retransmits, out.Timeouts = int64(t.Retransmits.Value()), int64(t.Timeouts.Value())
	}
	return out
}

// packet looks at one packet of the box, which is at the beginning of chunk if there is
// one, and reports whether that was taken over.
func (l *Link) packet(b []byte, chunk *buffer.View) (taken bool) {
	p, drop := classify(b, l.cfg.Addresses)
	switch {
	case drop != "":
		l.counts.drop(drop)
	case p.dns:
		l.counts.DNS.Add(1)
		if answer := l.handler.DNS(p.payload); answer != nil {
			l.out.write([][]byte{reply(p, answer)}, p.version, false)
		}
	default:
		l.counts.Packets.Add(1)
		l.counts.Bytes.Add(int64(len(p.whole)))
		l.active.Store(int64(time.Since(l.start)))
		if len(p.whole) <= largePacket {
			chunk = nil // a message may be longer than its packet, which must not hold all of it
		}
		if s := l.up(); s != nil {
			s.deliver(p, chunk)
			return chunk != nil
		}
	}
	return false
}

// up returns the stack, and builds it if there is none. Nil when the wire ends
// or no stack can be built: then boxes have no network.
func (l *Link) up() *netstack {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stack != nil || l.closed {
		return l.stack
	}
	s, err := newNetstack(l)
	if err != nil {
		l.counts.drop(DropStack)
		return nil
	}
	l.stack = s
	l.counts.Stacks.Add(1)
	l.idle = time.AfterFunc(l.cfg.Idle, l.down)
	return s
}

// down drops the stack if it was not used.
func (l *Link) down() {
	l.mu.Lock()
	s := l.stack
	if s == nil || l.closed {
		l.mu.Unlock()
		return
	}
	quiet := time.Since(l.start) - time.Duration(l.active.Load())
	if quiet < l.cfg.Idle || s.busy() {
		l.idle.Reset(max(l.cfg.Idle-quiet, l.cfg.Idle/8))
		l.mu.Unlock()
		return
	}
	l.stack = nil
	l.mu.Unlock()
	s.close()
}

// Discard closes the descriptor of a wire that is not opened.
func Discard(cfg Config) error { return unix.Close(cfg.FD) }
