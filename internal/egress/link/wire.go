package link

import (
	"errors"
	"io"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
)

// read reads packets until the other end is closed. A wire that waits holds no
// buffer.
func (l *Link) read() error {
	inARow := 0
	pool := sync.Pool{New: func() any { b := make([]byte, 1<<16); return &b }}
	var buf *[]byte
	var chunk *buffer.View // taken instead after a large packet
	drop := func() {
		if chunk != nil {
			chunk.Release()
			chunk = nil
		}
	}
	defer drop()
	for {
		var n int
		var err error
		woken := false
		waitErr := l.raw.Read(func(fd uintptr) bool {
			if buf == nil {
				if !woken && !readable(int(fd)) {
					woken = true // when this is called again
					return false
				}
				buf = pool.Get().(*[]byte)
			}
			into := *buf
			if chunk != nil {
				into = chunk.AsSlice()
			}
			n, err = l.receive(int(fd), into)
			if errors.Is(err, unix.EAGAIN) {
				drop()
				pool.Put(buf)
				buf, woken, inARow = nil, true, 0
				return false
			}
			return true
		})
		switch {
		case waitErr != nil:
			return waitErr
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // the veth pair is not up yet
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		default:
			if chunk == nil {
				l.packet((*buf)[:n], nil)
			} else if n <= largePacket {
				l.packet(chunk.AsSlice()[:n], nil)
				drop()
			} else if l.packet(chunk.AsSlice()[:n], chunk) {
				chunk = nil // a packet of the stack's now
			}
			if n > largePacket && chunk == nil {
				chunk = buffer.NewViewSize(len(*buf))
			}
			// A box that never stops sending is not to keep the others' goroutines
			// waiting until the runtime takes the processor away, which is 10 ms.
			if inARow++; inARow%turn == 0 {
				runtime.Gosched()
			}
		}
	}
}

// largePacket is the size, in bytes, above which the stack gives a packet a chunk of
// 64 KiB: then the packet may as well be read into that.
const largePacket = 32 << 10

// turn is how many packets in a row are read before others have theirs.
const turn = 64

// readable reports whether a read would say something now.
func readable(fd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0 || err != nil
}

// receive reads one packet. A packet that is larger than b is returned short,
// and its length in the header then tells.
func (l *Link) receive(fd int, b []byte) (int, error) {
	if l.cfg.Kind == TUN {
		return unix.Read(fd, b)
	}
	n, from, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, err
	}
	if l.cfg.Kind == Seqpacket && n == 0 {
		return 0, io.EOF
	}
	if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
		return 0, unix.EINTR // our own, which the kernel shows to who listens
	}
	return n, nil
}

// The queue of packets that wait for the box to take some.
const (
	queuePackets = 512
	queueBytes   = 2 << 20
)

// sender writes packets to the wire in order. What the wire does not take at
// once waits in a queue with a bound; what has no room there is lost, as on any
// wire.
type sender struct {
	link *Link

	mu      sync.Mutex
	queue   []queued
	bytes   int
	running bool
}

type queued struct {
	b       []byte
	version int
}

// write sends a packet, or lets it wait for another goroutine if it may be later.
// It reports whether there was room.
func (s *sender) write(parts [][]byte, version int, later bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running && !later {
		var err error
		failed := s.link.raw.Control(func(fd uintptr) { err = s.link.send(int(fd), parts, version) })
		if failed != nil {
			return false
		}
		if err == nil {
			return true
		}
		if !again(err) {
			s.link.counts.drop(DropFull)
			return false
		}
	}
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if len(s.queue) >= queuePackets || s.bytes+n > queueBytes {
		s.link.counts.drop(DropFull)
		return false
	}
	whole := make([]byte, 0, n)
	for _, p := range parts {
		whole = append(whole, p...)
	}
	s.queue = append(s.queue, queued{whole, version})
	s.bytes += n
	if !s.running {
		s.running = true
		go s.drain()
	}
	return true
}

// drain writes what waits, until nothing does.
func (s *sender) drain() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.running, s.queue = false, nil
			s.mu.Unlock()
			return
		}
		q := s.queue[0]
		s.queue = s.queue[1:]
		s.bytes -= len(q.b)
		s.mu.Unlock()
		var err error
		failed := s.link.raw.Write(func(fd uintptr) bool {
			err = s.link.send(int(fd), [][]byte{q.b}, q.version)
			return !again(err)
		})
		if failed != nil || err != nil {
			s.link.counts.drop(DropFull)
		}
	}
}

// again reports whether a packet may be taken later. ENOBUFS is a device whose
// queue is full, and does not tell when that has changed.
func again(err error) bool { return errors.Is(err, unix.EAGAIN) }

// send writes one packet.
func (l *Link) send(fd int, parts [][]byte, version int) error {
	if l.cfg.Kind == Packet {
		to := &unix.SockaddrLinklayer{Ifindex: l.cfg.Interface, Halen: 6, Protocol: etherType(version)}
		copy(to.Addr[:], l.cfg.PeerMAC[:])
		_, err := unix.SendmsgBuffers(fd, parts, nil, to, unix.MSG_DONTWAIT)
		return err
	}
	if l.cfg.Kind == Seqpacket { // the box's first process has the flag O_NONBLOCK in its hands, too
		_, err := unix.SendmsgBuffers(fd, parts, nil, nil, unix.MSG_DONTWAIT)
		return err
	}
	_, err := unix.Writev(fd, parts)
	return err
}

// etherType is the protocol number of an IP version, in network order.
func etherType(version int) uint16 {
	if version == 6 {
		return 0xdd86
	}
	return 0x0008
}
