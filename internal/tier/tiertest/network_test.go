package tiertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// linkedSpec is of a box with a second interface.
func linkedSpec() box.Spec {
	s := spec()
	s.Net.Mode = box.NetAllowlist
	return s
}

// linkOf is the host's end of a box's link, to be closed with the test.
func linkOf(t *testing.T, b box.Lasting) box.Link {
	t.Helper()
	l, err := b.(box.Linked).Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fd := int(l.File.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	fd, err = syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	l.File.Close()
	syscall.CloseOnExec(fd)
	l.File = os.NewFile(uintptr(fd), "link") // which can be waited for
	t.Cleanup(func() { l.File.Close() })
	return l
}

// echo answers every datagram that comes out of a box with its own bytes, from
// wherever it was for, and counts all packets.
type echo struct{ all, answered atomic.Int64 }

func (e *echo) serve(t *testing.T, l box.Link) {
	buf := make([]byte, 1<<17)
	for {
		n, err := l.File.Read(buf)
		if err != nil || n == 0 {
			return
		}
		e.all.Add(1)
		if !echoed(buf[:n]) {
			continue
		}
		e.answered.Add(1) // now: who asks has the answer before its sender goes on
		if err := send(l, buf[:n]); err != nil {
			t.Errorf("cannot answer: %v", err)
			return
		}
	}
}

// send puts one packet on a link.
func send(l box.Link, ip []byte) error {
	if l.Kind != box.LinkPacket {
		_, err := l.File.Write(ip)
		return err
	}
	fd := int(l.File.Fd()) // blocks from now on, as a test may
	me, err := syscall.Getsockname(fd)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(box.LinkBoxMAC)
	if err != nil {
		return err
	}
	to := syscall.SockaddrLinklayer{Ifindex: me.(*syscall.SockaddrLinklayer).Ifindex, Halen: 6, Protocol: 0x0008} // 0x0800, in the order of the network
	if ip[0]>>4 == 6 {
		to.Protocol = 0xdd86
	}
	copy(to.Addr[:], mac)
	return syscall.Sendto(fd, ip, 0, &to)
}

// echoed turns a UDP packet around, in place.
func echoed(ip []byte) bool {
	var at, addr, alen int
	switch {
	case len(ip) > 28 && ip[0] == 0x45 && ip[9] == syscall.IPPROTO_UDP:
		at, addr, alen = 20, 12, 4
	case len(ip) > 48 && ip[0]>>4 == 6 && ip[6] == syscall.IPPROTO_UDP:
		at, addr, alen = 40, 8, 16
	default:
		return false
	}
	swap := func(at, n int) {
		a := append([]byte(nil), ip[at:at+n]...)
		copy(ip[at:], ip[at+n:at+2*n])
		copy(ip[at+n:], a)
	}
	swap(addr, alen)
	swap(at, 2)
	udp := ip[at:]
	udp[6], udp[7] = 0, 0
	sum := uint32(syscall.IPPROTO_UDP) + uint32(len(udp))
	for _, part := range [][]byte{ip[addr : addr+2*alen], udp} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(part[i]) << 8
			if i+1 < len(part) {
				sum += uint32(part[i+1])
			}
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], ^uint16(sum))
	return true
}

// asksOut sends datagrams of several sizes to addresses in the world.
const asksOut = `python3 -c '
import socket
for family, addr in ((socket.AF_INET, "203.0.113.9"), (socket.AF_INET6, "2001:db8::9"), (socket.AF_INET, "198.18.0.1"), (socket.AF_INET, "127.0.0.53")):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(60); s.connect((addr, 53))
    for n in (1, 100, 1501, 40001):
        try: s.send(b"x" * n); print(addr, n, len(s.recv(70000)))
        except OSError as e: print(addr, n, type(e).__name__)
'`

// asksOnce sends one, and does not wait long.
const asksOnce = `python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5); s.connect(("203.0.113.9", 53)); s.send(b"?")
try: print("answered", s.recv(9))
except TimeoutError: print("nobody")
'`

const asked = `203.0.113.9 1 1
203.0.113.9 100 100
203.0.113.9 1501 1501
203.0.113.9 40001 40001
2001:db8::9 1 1
2001:db8::9 100 100
2001:db8::9 1501 1501
2001:db8::9 40001 40001
198.18.0.1 1 1
198.18.0.1 100 100
198.18.0.1 1501 1501
198.18.0.1 40001 40001
`

// answered runs asksOut in a box.
func answered(t *testing.T, g box.Guest) {
	t.Helper()
	out := run(t, g, asksOut)
	got, local, _ := strings.Cut(out, "127.0.0.53")
	if got != asked {
		t.Errorf("answers to a box:\n%s", out)
	}
	if strings.Contains(local, " 1 1 ") {
		t.Errorf("a packet to loopback left the box: %s", local)
	}
}

func TestAllThatLeavesABoxComesOutOfItsLink(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, linkedSpec())
		l := linkOf(t, b)
		var e echo
		go e.serve(t, l)
		answered(t, use(t, b))
		if e.answered.Load() != 12 {
			t.Errorf("%d packets were answered, not 12", e.answered.Load())
		}
		t.Logf("%s: %d packets", l.Kind, e.all.Load())
		p.destroy(t, b)
	})
}

// A box that lasts keeps the end for the fronts to come; meanwhile nothing answers.
func TestALinkOutlivesWhoReadsIt(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, linkedSpec())
		first := linkOf(t, b)
		var e echo
		go e.serve(t, first)
		g := use(t, b)
		answered(t, g)
		first.File.Close()
		if out := run(t, g, asksOnce); out != "nobody\n" {
			t.Errorf("nobody is there, and somebody answers: %s", out)
		}
		g.Close()
		state := b.State()
		b.Detach()
		b = p.recover(t, b.ID(), state)
		again := linkOf(t, b)
		if again.Kind != first.Kind {
			t.Errorf("the link was %s and is %s", first.Kind, again.Kind)
		}
		// What was sent meanwhile and not dropped would be answered late.
		for deadline := time.Now().Add(100 * time.Millisecond); time.Now().Before(deadline); {
			_ = again.File.SetReadDeadline(deadline)
			_, _ = again.File.Read(make([]byte, 1<<17))
		}
		_ = again.File.SetReadDeadline(time.Time{})
		go e.serve(t, again)
		answered(t, use(t, b))
		p.destroy(t, b)
	})
}

func TestABoxWithoutANetworkHasNoLink(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		if l, err := b.(box.Linked).Link(t.Context()); box.KindOf(err) != box.Unsupported {
			t.Errorf("a link of %s, %v", l.Kind, err)
		}
		if out := run(t, use(t, b), "tail -n +3 /proc/net/dev | cut -d: -f1"); strings.TrimSpace(out) != "lo" {
			t.Errorf("interfaces: %q", out)
		}
		p.destroy(t, b)
	})
}

// tricks are what a program would do to its network if it had a right left.
const tricks = `python3 -c '
import fcntl, socket, struct
def tries(name, fn):
    try: fn(); print(name, "works")
    except OSError as e: print(name, e.strerror)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
tries("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
tries("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
tries("down", lambda: fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"eth0", 0)))
tries("address", lambda: fcntl.ioctl(s, 0x8916, struct.pack("16sH2x4s8x", b"eth0", 2, bytes([192, 0, 2, 1]))))
tries("tun", lambda: fcntl.ioctl(open("/dev/net/tun", "r+b", buffering=0), 0x400454ca, struct.pack("16sh14x", b"t0", 0x1001)))
import os
print("descriptors", sorted(os.listdir("/proc/self/fd"))[:-1])
'; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\n' ' '; cat /etc/resolv.conf`

func TestAProgramHasNoRightOverItsLink(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, linkedSpec())
		out := run(t, use(t, b), tricks)
		if strings.Contains(out, "works") || !strings.Contains(out, "down ") || !strings.Contains(out, "descriptors [\"0\", \"1\", \"2\"") && !strings.Contains(out, "descriptors ['0', '1', '2'") || !strings.HasSuffix(out, "eth0 lo nameserver 198.18.0.1\n") {
			t.Errorf("a program says: %s", out)
		}
		p.destroy(t, b)
	})
}

// A copy goes on with a link of its own.
func TestACopyHasALinkOfItsOwn(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := memorySpec()
	made.Net.Mode = box.NetAllowlist
	b := p.create(t, made)
	var e echo
	go e.serve(t, linkOf(t, b))
	g := use(t, b)
	answered(t, g)
	leave(t, g)
	s := p.copyMemory(t, b)
	again := made
	again.ID = box.NewID()
	made2, err := p.standing.(box.Restorer).Restore(t.Context(), again, s)
	if err != nil {
		t.Fatal(err)
	}
	c := made2.(box.Lasting)
	var other echo
	go other.serve(t, linkOf(t, c))
	answered(t, use(t, c))
	if other.answered.Load() != 12 || e.answered.Load() != 12 {
		t.Errorf("%d packets came out of the copy's link and %d of the first box's, not 12 each", other.answered.Load(), e.answered.Load())
	}
	answered(t, use(t, b))
	p.destroy(t, c)
	p.destroy(t, b)
	p.empty(t)
}

// What a box with a network has open beyond what any box has is its link, in its
// first process and in its kernel, and in no program. All threads have lost the same.
func TestPostureOfABoxWithANetwork(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		made := func(s box.Spec) box.Lasting {
			b := p.create(t, s)
			start(t, use(t, b), "sleep", "1000")
			uid, _ := p.HostUser(b.ID())
			for name, all := range p.settled(t, b) {
				for _, q := range all {
					p.checkThreads(t, name, q, uid)
				}
			}
			return b
		}
		opened := func(b box.Lasting) map[string]map[string]int {
			kinds := map[string]map[string]int{}
			for name, all := range p.settled(t, b) {
				for _, q := range all {
					if !q.Hidden {
						kinds[name] = p.descriptors(q, b.ID())
					}
				}
			}
			return kinds
		}
		one, other := made(spec()), made(linkedSpec())
		own := map[string]int{"sunaba-cell": 1, "sunaba-runner": 1, "runsc-sandbox": 1, "stub": 1}
		if err := comes(func() (err error) { // what either has open for a moment is not judged
			plain, linked := opened(one), opened(other)
			for name, kinds := range linked {
				more := 0
				for kind, n := range kinds {
					switch {
					case strings.HasPrefix(kind, "file of the host below /usr"), strings.HasPrefix(kind, "anon_inode:"): // as many as there happen to be
					default:
						more += n - plain[name][kind]
					}
				}
				if more != own[name] {
					err = errors.Join(err, fmt.Errorf("%s has %d descriptors more with a network, want %d:\n%v\n%v", name, more, own[name], plain[name], kinds))
				}
			}
			if len(linked) == 0 && os.Getuid() == 0 {
				t.Fatal("no process was compared")
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		p.destroy(t, one)
		p.destroy(t, other)
	})
}
