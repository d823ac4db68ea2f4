package link

import (
	"context"
	"encoding/binary"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// judge answers every question with its own bytes, and does with flows what a
// test says.
type judge struct {
	mu    sync.Mutex
	flows []netip.AddrPort
	tcp   func(*Flow)
	dns   func([]byte) []byte
}

func (j *judge) DNS(q []byte) []byte {
	if j.dns != nil {
		return j.dns(q)
	}
	return append([]byte("answer to "), q...)
}

func (j *judge) TCP(f *Flow) {
	j.mu.Lock()
	j.flows = append(j.flows, f.Dst)
	j.mu.Unlock()
	if j.tcp != nil {
		j.tcp(f)
	}
}

// seqpacket returns the two ends of a wire: the gateway's, the box's.
func seqpacket(t testing.TB) [2]int {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// wire opens a link and returns the box's end.
func wire(t *testing.T, j *judge, change ...func(*Config)) (*Link, int) {
	t.Helper()
	pair := seqpacket(t)
	_ = unix.SetsockoptTimeval(pair[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60})
	cfg := Config{FD: pair[0], Kind: Seqpacket, Offload: true, Addresses: Plan()}
	for _, c := range change {
		c(&cfg)
	}
	l, err := Open(cfg, j)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run(context.Background()) }()
	t.Cleanup(func() {
		unix.Close(pair[1])
		if err := <-done; err != nil {
			t.Errorf("the wire ended with %v", err)
		}
	})
	return l, pair[1]
}

func send(t *testing.T, fd int, b []byte) {
	t.Helper()
	if _, err := unix.Write(fd, b); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next packet, or nil if none comes for a minute.
func receive(fd int) []byte {
	b := make([]byte, 1<<16)
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil
	}
	return b[:n]
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen that %s", what)
		}
	}
}

func ip4(proto byte, dst string, rest []byte) []byte {
	b := make([]byte, 20, 20+len(rest))
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(rest)))
	copy(b[12:], Plan().Box4.AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^sum(0, b))
	return append(b, rest...)
}

func ip6(next byte, dst string, rest []byte) []byte {
	b := make([]byte, 40, 40+len(rest))
	b[0], b[6], b[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(rest)))
	copy(b[8:], Plan().Box6.AsSlice())
	copy(b[24:], netip.MustParseAddr(dst).AsSlice())
	return append(b, rest...)
}

func syn(port uint16) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, 40000)
	binary.BigEndian.PutUint16(b[2:], port)
	b[12], b[13] = 5<<4, 2
	binary.BigEndian.PutUint16(b[14:], 65535)
	return b
}

func datagram(port uint16, body string) []byte {
	b := make([]byte, 8, 8+len(body))
	binary.BigEndian.PutUint16(b, 40000)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(body)))
	return append(b, body...)
}

func change(b []byte, at int, to ...byte) []byte {
	copy(b[at:], to)
	return b
}

// Section G of the cases: everything but TCP and DNS is dropped, each counted
// under its reason, and no stack is built for it. The first lines are the
// controls.
func TestOnlyTCPAndQuestionsPass(t *testing.T) {
	fragment6 := append([]byte{protoTCP, 0, 0, 1, 0, 0, 0, 1}, syn(443)...)
	for _, c := range []struct {
		name string
		b    []byte
		why  Drop
	}{
		{"TCP", ip4(protoTCP, "8.8.8.8", syn(443)), ""},
		{"TCP over IPv6", ip6(protoTCP, "2001:4860::1", syn(443)), ""},
		{"a question", ip4(protoUDP, "8.8.8.8", datagram(53, "?")), ""},
		{"a question over IPv6", ip6(protoUDP, "2001:4860::1", datagram(53, "?")), ""},
		{"QUIC (80)", ip4(protoUDP, "8.8.8.8", datagram(443, "?")), DropUDP},
		{"QUIC over IPv6", ip6(protoUDP, "2001:4860::1", datagram(443, "?")), DropUDP},
		{"NTP (82)", ip4(protoUDP, "8.8.8.8", datagram(123, "?")), DropUDP},
		{"DNS over QUIC (28)", ip4(protoUDP, "8.8.8.8", datagram(853, "?")), DropUDP},
		{"mDNS (28)", ip4(protoUDP, "224.0.0.251", datagram(5353, "?")), DropDest},
		{"mDNS, sent to one", ip4(protoUDP, "8.8.8.8", datagram(5353, "?")), DropUDP},
		{"LLMNR (28)", ip6(protoUDP, "ff02::1:3", datagram(5355, "?")), DropDest},
		{"NetBIOS (28)", ip4(protoUDP, "255.255.255.255", datagram(137, "?")), DropDest},
		{"a question to all", ip4(protoUDP, "255.255.255.255", datagram(53, "?")), DropDest},
		{"a question to a group", ip6(protoUDP, "ff02::fb", datagram(53, "?")), DropDest},
		{"echo (81)", ip4(protoICMP, "8.8.8.8", append([]byte{8, 0, 0, 0, 0, 0, 0, 0}, "data"...)), DropICMP},
		{"echo over IPv6 (81)", ip6(protoICMPv6, "2001:4860::1", []byte{128, 0, 0, 0, 0, 0, 0, 0}), DropICMP},
		{"neighbours", ip6(protoICMPv6, "fe80::1", []byte{135, 0, 0, 0}), DropICMP},
		{"SCTP (83)", ip4(132, "8.8.8.8", make([]byte, 20)), DropProtocol},
		{"GRE (83)", ip4(47, "8.8.8.8", make([]byte, 20)), DropProtocol},
		{"IP in IP (83)", ip4(4, "8.8.8.8", ip4(protoTCP, "8.8.8.8", syn(443))), DropProtocol},
		{"IPv6 in IP (83)", ip4(41, "8.8.8.8", ip6(protoTCP, "2001:4860::1", syn(443))), DropProtocol},
		{"IGMP", ip4(2, "8.8.8.8", make([]byte, 8)), DropProtocol},
		{"ESP", ip4(50, "8.8.8.8", make([]byte, 20)), DropProtocol},
		{"the first fragment (83)", change(ip4(protoTCP, "8.8.8.8", syn(443)), 6, 0x20), DropFragment},
		{"a later fragment (83)", change(ip4(protoTCP, "8.8.8.8", syn(443)), 6, 0, 8), DropFragment},
		{"the evil bit", change(ip4(protoTCP, "8.8.8.8", syn(443)), 6, 0x80), DropFragment},
		{"a fragment of IPv6 (83)", ip6(44, "2001:4860::1", fragment6), DropFragment},
		{"hop-by-hop options (83)", ip6(0, "2001:4860::1", append([]byte{protoTCP, 0, 1, 4, 0, 0, 0, 0}, syn(443)...)), DropOptions},
		{"a routing header (83)", ip6(43, "2001:4860::1", append([]byte{protoTCP, 0, 0, 0, 0, 0, 0, 0}, syn(443)...)), DropOptions},
		{"destination options (83)", ip6(60, "2001:4860::1", append([]byte{protoTCP, 0, 1, 4, 0, 0, 0, 0}, syn(443)...)), DropOptions},
		{"no next header", ip6(59, "2001:4860::1", nil), DropProtocol},
		{"IPv4 options", change(ip4(protoTCP, "8.8.8.8", append([]byte{1, 1, 1, 1}, syn(443)...)), 0, 0x46), DropOptions},
		{"another's address", change(ip4(protoTCP, "8.8.8.8", syn(443)), 12, 198, 18, 0, 3), DropSource},
		{"the gateway's address", change(ip4(protoUDP, "8.8.8.8", datagram(53, "?")), 12, 198, 18, 0, 1), DropSource},
		{"another's IPv6 address", change(ip6(protoTCP, "2001:4860::1", syn(443)), 23, 3), DropSource},
		{"to itself", ip4(protoTCP, Plan().Box4.String(), syn(443)), DropDest},
		{"to loopback", ip4(protoTCP, "127.0.0.1", syn(443)), DropDest},
		{"to IPv6 loopback", ip6(protoTCP, "::1", syn(443)), DropDest},
		{"to nobody", ip4(protoTCP, "0.0.0.0", syn(443)), DropDest},
		{"to IPv4 in IPv6", ip6(protoTCP, "::ffff:8.8.8.8", syn(443)), DropDest},
		{"half a header", ip4(protoTCP, "8.8.8.8", syn(443))[:19], DropMalformed},
		{"half of TCP", ip4(protoTCP, "8.8.8.8", syn(443)[:19]), DropMalformed},
		{"TCP with a header of its own length", ip4(protoTCP, "8.8.8.8", change(syn(443), 12, 0xf0)), DropMalformed},
		{"longer than it is", change(ip4(protoTCP, "8.8.8.8", syn(443)), 2, 0xff, 0xff), DropMalformed},
		{"shorter than its header", change(ip4(protoTCP, "8.8.8.8", syn(443)), 2, 0, 10), DropMalformed},
		{"a datagram longer than its packet", ip4(protoUDP, "8.8.8.8", change(datagram(53, "?"), 4, 0xff)), DropMalformed},
		{"port 0", ip4(protoTCP, "8.8.8.8", syn(0)), DropMalformed},
		{"version 5", change(ip4(protoTCP, "8.8.8.8", syn(443)), 0, 0x55), DropMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &judge{}
			l, fd := wire(t, j)
			send(t, fd, c.b)
			if c.why != "" {
				until(t, "it is dropped", func() bool { return len(l.Counts().Dropped) > 0 })
				_ = unix.SetNonblock(fd, true)
			}
			got := receive(fd)
			n := l.Counts()
			if c.why == "" {
				if got == nil || len(n.Dropped) != 0 {
					t.Errorf("nothing came back; dropped %v", n.Dropped)
				}
				return
			}
			if got != nil || n.Dropped[c.why] != 1 || n.Stacks != 0 || n.DNS != 0 {
				t.Errorf("came back %x; %+v, want one dropped as %s", got, n, c.why)
			}
		})
	}
}

func TestAnAnswerIsAWellFormedPacket(t *testing.T) {
	_, fd := wire(t, &judge{})
	for _, c := range []struct {
		q    []byte
		head int
	}{{ip4(protoUDP, "8.8.8.8", datagram(53, "odd")), 20}, {ip6(protoUDP, "2001:4860::1", datagram(53, "even")), 40}} {
		send(t, fd, c.q)
		b := receive(fd)
		if len(b) != c.head+8+len("answer to ")+len(c.q)-c.head-8 {
			t.Fatalf("%d bytes: %x", len(b), b)
		}
		u := b[c.head:]
		if binary.BigEndian.Uint16(u) != 53 || binary.BigEndian.Uint16(u[2:]) != 40000 {
			t.Errorf("ports: %x", u[:4])
		}
		addresses := b[12:20]
		if c.head == 40 {
			addresses = b[8:40]
		} else if sum(0, b[:20]) != 0xffff {
			t.Errorf("the header's checksum is wrong: %x", b[:20])
		}
		if s := sum(add(sum(protoUDP, addresses), uint16(len(u))), u); s != 0xffff {
			t.Errorf("the checksum is wrong: %x", s)
		}
	}
}

func TestWhatIsNotAcceptedIsReset(t *testing.T) {
	for name, tcp := range map[string]func(*Flow){
		"refused": (*Flow).Refuse, "forgotten": func(*Flow) {}, "after a panic": func(*Flow) { panic("of the test") },
	} {
		t.Run(name, func(t *testing.T) {
			j := &judge{tcp: tcp}
			l, fd := wire(t, j)
			send(t, fd, ip4(protoTCP, "8.8.8.8", syn(443)))
			b := receive(fd)
			if len(b) < 40 || b[33]&4 == 0 {
				t.Fatalf("no reset: %x", b)
			}
			if len(j.flows) != 1 || j.flows[0] != netip.MustParseAddrPort("8.8.8.8:443") {
				t.Errorf("flows %v", j.flows)
			}
			until(t, "it no longer counts as open", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return !l.stack.busy()
			})
		})
	}
}

func TestAStackIsBuiltForTheFirstConnectionAndDroppedWhenIdle(t *testing.T) {
	l, fd := wire(t, &judge{}, func(c *Config) { c.Idle = time.Second })
	send(t, fd, ip4(protoUDP, "8.8.8.8", datagram(53, "?")))
	if receive(fd) == nil || l.Active() {
		t.Fatal("a question needs a stack")
	}
	for i := range 3 {
		send(t, fd, ip4(protoTCP, "8.8.8.8", syn(443)))
		if receive(fd) == nil {
			t.Fatalf("no answer in round %d", i)
		}
		if n := l.Counts().Stacks; n != int64(i+1) { // which may be gone again by now
			t.Fatalf("%d stacks were built before round %d had its answer", n, i)
		}
		until(t, "the stack is dropped", func() bool { return !l.Active() })
	}
	if n := l.Counts().Stacks; n != 3 {
		t.Errorf("%d stacks were built", n)
	}
}

// A connection that a gateway before this one had is none any more, and its
// box must learn it.
func TestAPacketOfAnUnknownConnectionIsReset(t *testing.T) {
	_, fd := wire(t, &judge{})
	send(t, fd, ip4(protoTCP, "8.8.8.8", change(syn(443), 13, 0x18)))
	if b := receive(fd); len(b) < 40 || b[33]&4 == 0 {
		t.Fatalf("no reset: %x", b)
	}
}

// A box that does not take its packets costs no more than the queue.
func TestABoxThatDoesNotReadIsBounded(t *testing.T) {
	l, fd := wire(t, &judge{dns: func([]byte) []byte { return make([]byte, 60<<10) }})
	for range 2000 {
		send(t, fd, ip4(protoUDP, "8.8.8.8", datagram(53, "?")))
	}
	send(t, fd, ip4(protoUDP, "8.8.8.8", datagram(443, "?"))) // once this one is dropped, all before it are done with
	until(t, "all were read", func() bool { return l.Counts().Dropped[DropUDP] == 1 && l.Counts().DNS == 2000 })
	l.out.mu.Lock()
	waiting := l.out.bytes
	l.out.mu.Unlock()
	if waiting > queueBytes || l.Counts().Dropped[DropFull] == 0 {
		t.Errorf("%d bytes wait, %v", waiting, l.Counts().Dropped)
	}
	n := 2000 - int(l.Counts().Dropped[DropFull])
	if n == 0 {
		t.Error("nothing arrives")
	}
	for i := range n { // and no more, or the next answer is not the last packet
		if receive(fd) == nil {
			t.Fatalf("%d answers arrived of %d", i, n)
		}
	}
	send(t, fd, ip4(protoUDP, "8.8.8.8", datagram(53, "?")))
	if receive(fd) == nil {
		t.Error("it does not recover")
	}
}

// What all connections of a box may hold together has a bound.
func TestManyConnectionsShareTheirBuffers(t *testing.T) {
	got := make(chan int64, 256)
	_, fd := wire(t, &judge{tcp: func(f *Flow) {
		c, err := f.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		o := c.end.SocketOptions()
		got <- o.GetReceiveBufferSize() + o.GetSendBufferSize()
	}})
	var first, last, total int64
	for i := range 256 {
		head := syn(5432)
		binary.BigEndian.PutUint16(head, uint16(20000+i))
		send(t, fd, ip4(protoTCP, "8.8.8.8", head))
		b := receive(fd)
		for len(b) >= 40 && binary.BigEndian.Uint16(b[22:]) != uint16(20000+i) {
			b = receive(fd) // an acceptance that was sent again, since the answer to it took a second
		}
		if len(b) < 40 || b[33] != 0x12 {
			t.Fatalf("no acceptance: %x", b)
		}
		binary.BigEndian.PutUint32(head[4:], 1)
		binary.BigEndian.PutUint32(head[8:], binary.BigEndian.Uint32(b[24:])+1)
		send(t, fd, ip4(protoTCP, "8.8.8.8", change(head, 13, 0x10)))
		last = <-got
		total += last
		if i == 0 {
			first = last
		}
	}
	if first != 2*bufferSize || last > 2*bufferSum/256 || total > 2*36<<20+1<<20 {
		t.Errorf("the first has %d bytes, the last %d, all %d", first, last, total)
	}
}
