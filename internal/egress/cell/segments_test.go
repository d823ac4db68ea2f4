package cell

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
)

type peerConn struct {
	src, dport uint16
	dst        netip.Addr
	seq, ack   uint32 // ours next, theirs next
	up         bool
	hasTS      bool
}

func ipOf(src, dst netip.Addr, proto byte, rest []byte) []byte {
	if dst.Is4() {
		b := make([]byte, 20, 20+len(rest))
		b[0], b[8], b[9] = 0x45, 64, proto
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(rest)))
		copy(b[12:], src.AsSlice())
		copy(b[16:], dst.AsSlice())
		return append(b, rest...)
	}
	b := make([]byte, 40, 40+len(rest))
	b[0], b[6], b[7] = 0x60, proto, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(rest)))
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	return append(b, rest...)
}

func seg(src, dst uint16, seq, ack uint32, flags byte, win uint16, opts, data []byte) []byte {
	for len(opts)%4 != 0 {
		opts = append(opts, 1)
	}
	b := make([]byte, 20, 20+len(opts)+len(data))
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	binary.BigEndian.PutUint32(b[4:], seq)
	binary.BigEndian.PutUint32(b[8:], ack)
	b[12], b[13] = byte(5+len(opts)/4)<<4, flags
	binary.BigEndian.PutUint16(b[14:], win)
	b = append(b, opts...)
	return append(b, data...)
}

// hostilePolicy allows an echo, a source that never ends, and plain HTTP.
const hostilePolicy = `
  - { host: echo.example.com, port: 5432, protocol: tcp }
  - { host: src.example.com, port: 5433, protocol: tcp }
  - { host: web.example.com, port: 80 }
`

// Whoever has taken over a box's kernel sends segments that no kernel sends: outside of
// every window, over each other, with options of no meaning, half of a handshake. What
// it costs is bounded, no goroutine of the stack panics, the wire ends at once in the
// middle of it, and nothing stays.
func TestSegmentsThatNoKernelSendsAreBoundedAndLeaveNothing(t *testing.T) {
	w := newWorld()
	w.host(t, "echo.example.com", "8.8.4.1", "5432", func(c net.Conn) { _, _ = io.Copy(c, c) })
	w.host(t, "src.example.com", "8.8.4.2", "5433", func(c net.Conn) {
		for b := make([]byte, 1<<16); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	w.host(t, "web.example.com", "8.8.4.3", "80", func(c net.Conn) {
		for b := make([]byte, 4096); ; {
			_, err := c.Read(b)
			if err == nil {
				_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
			}
			if err != nil {
				return
			}
		}
	})
	seed := uint64(time.Now().UnixNano())
	before := runtime.NumGoroutine()
	for mode := range 3 {
		t.Logf("seed %d, mode %d", seed, mode)
		r := rand.New(rand.NewPCG(seed, uint64(mode)))
		pair := seqpacket(t)
		c, err := New(Config{
			ID: "s", Policy: load(t, hostilePolicy), Generation: 1,
			Wire:     link.Config{FD: pair[0], Kind: link.Seqpacket, Offload: true, Addresses: link.Plan()},
			Dialer:   &dial.Dialer{Resolver: w, Map: w.place, Timeout: patience},
			Timeouts: Timeouts{Hello: time.Second, Head: time.Second, Idle: time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Run(context.Background()) }()
		storm(t, r, pair[1], mode, func() bool { return c.Stats().Wire.Flows > 0 })
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if s := c.Stats(); s.Panics > 0 || s.Wire.Flows == 0 || m.HeapAlloc > 200<<20 {
			t.Errorf("%d panics, %d flows, %d MiB", s.Panics, s.Wire.Flows, m.HeapAlloc>>20)
		}
		began := time.Now()
		go func() { _ = c.Close() }()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("the wire does not end")
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the wire ended after %v", took)
		}
		unix.Close(pair[1])
	}
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(50 * time.Millisecond) {
		now := runtime.NumGoroutine()
		if now <= before+3 {
			break
		}
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after\n%s", before, now, buf[:runtime.Stack(buf, true)])
		}
	}
}

// storm sends them for a second, and until something has begun. In mode 1 half of the greetings get no answer, in
// mode 2 it leaves the stack time.
func storm(t *testing.T, r *rand.Rand, fd, mode int, begun func() bool) {
	_ = unix.SetNonblock(fd, true)
	plan := link.Plan()
	buf := make([]byte, 1<<16)
	conns := map[uint16]*peerConn{}
	var list []*peerConn
	names := map[string][2]netip.Addr{}
	// ask names
	for _, n := range []string{"echo.example.com.", "src.example.com.", "web.example.com."} {
		var a [2]netip.Addr
		for i, k := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
			q := query(t, n, k)
			d := make([]byte, 8, 8+len(q))
			binary.BigEndian.PutUint16(d, 9999)
			binary.BigEndian.PutUint16(d[2:], 53)
			binary.BigEndian.PutUint16(d[4:], uint16(8+len(q)))
			unix.Write(fd, ipOf(plan.Box4, plan.Gateway4, 17, append(d, q...)))
			for deadline := time.Now().Add(patience); ; {
				m, err := unix.Read(fd, buf)
				if err == nil && buf[9] == 17 {
					_, as := unpack(t, append([]byte{}, buf[28:m]...))
					a[i] = as[0]
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("no answer for %s", n)
				}
				time.Sleep(time.Millisecond)
			}
		}
		names[n] = a
	}
	targets := []struct {
		n string
		p uint16
	}{{"echo.example.com.", 5432}, {"src.example.com.", 5433}, {"web.example.com.", 80}}
	port := uint16(1024 + r.IntN(30000))
	began := time.Now()
	for time.Since(began) < time.Second || !begun() && time.Since(began) < patience {
		// read all
		for {
			m, err := unix.Read(fd, buf)
			if err != nil || m < 40 {
				break
			}
			var h []byte
			if buf[0]>>4 == 4 {
				h = buf[20:m]
			} else {
				h = buf[40:m]
			}
			if len(h) < 20 {
				continue
			}
			pc := conns[binary.BigEndian.Uint16(h[2:])]
			if pc == nil {
				continue
			}
			seq, ack := binary.BigEndian.Uint32(h[4:]), binary.BigEndian.Uint32(h[8:])
			dl := len(h) - int(h[12]>>4)*4
			if h[13]&2 != 0 {
				pc.ack, pc.up, pc.seq = seq+1, true, ack
				if mode == 1 && r.IntN(2) == 0 {
					continue // half open
				}
				unix.Write(fd, ipOf(src(plan, pc.dst), pc.dst, 6, seg(pc.src, pc.dport, pc.seq, pc.ack, 16, 0xffff, nil, nil)))
			} else if dl > 0 && seq == pc.ack {
				if r.IntN(3) > 0 {
					pc.ack += uint32(dl)
				}
			}
			if h[13]&1 != 0 && r.IntN(2) == 0 {
				pc.ack++
			}
			if h[13]&4 != 0 {
				delete(conns, pc.src)
			}
		}
		list = list[:0]
		for _, pc := range conns {
			list = append(list, pc)
		}
		for i := 0; i < 200; i++ {
			if len(list) == 0 || r.IntN(40) == 0 && len(conns) < 400 {
				tg := targets[r.IntN(3)]
				port++
				if port < 1024 {
					port = 1024
				}
				pc := &peerConn{src: port, dport: tg.p, dst: names[tg.n][r.IntN(2)], seq: r.Uint32()}
				conns[port] = pc
				list = append(list, pc)
				var opts []byte
				if r.IntN(2) == 0 {
					opts = append(opts, 2, 4, byte(r.IntN(256)), byte(r.IntN(256)))
				}
				if r.IntN(2) == 0 {
					opts = append(opts, 4, 2, 1, 1)
				}
				if r.IntN(2) == 0 {
					opts = append(opts, 3, 3, byte(r.IntN(20)), 1)
				}
				if r.IntN(2) == 0 {
					opts = append(opts, 8, 10, 0, 0, 0, byte(r.IntN(256)), 0, 0, 0, 0, 1, 1)
					pc.hasTS = true
				}
				f := byte(2)
				if r.IntN(20) == 0 {
					f = byte(r.IntN(256))
				}
				var data []byte
				if r.IntN(10) == 0 {
					data = make([]byte, r.IntN(2000))
				}
				unix.Write(fd, ipOf(src(plan, pc.dst), pc.dst, 6, seg(pc.src, pc.dport, pc.seq, 0, f, uint16(r.IntN(65536)), opts, data)))
				continue
			}
			pc := list[r.IntN(len(list))]
			seq, ack, flags, win := pc.seq, pc.ack, byte(16), uint16(0xffff)
			var data []byte
			var opts []byte
			if pc.hasTS && r.IntN(4) > 0 {
				opts = append(opts, 1, 1, 8, 10)
				opts = binary.BigEndian.AppendUint32(opts, r.Uint32())
				opts = binary.BigEndian.AppendUint32(opts, r.Uint32())
			}
			switch r.IntN(14) {
			case 0, 1, 2: // in order
				n := r.IntN(3000)
				if r.IntN(3) == 0 {
					n = 1
				}
				data = make([]byte, n)
				if pc.dport == 80 {
					copy(data, "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n")
				}
				pc.seq += uint32(len(data))
			case 3: // out of order
				seq += uint32(r.IntN(1 << 20))
				data = make([]byte, 1+r.IntN(10))
			case 4:
				seq -= uint32(r.IntN(1 << 16))
				data = make([]byte, r.IntN(3000))
			case 5:
				seq = r.Uint32()
			case 6:
				ack = r.Uint32()
			case 7: // sacks
				opts = append(opts, 1, 1, 5)
				k := 1 + r.IntN(4)
				opts = append(opts, byte(2+8*k))
				base := ack
				for ; k > 0; k-- {
					a := base + uint32(r.IntN(1<<18))
					b := a + uint32(r.IntN(1<<17)) - uint32(r.IntN(1<<16))
					opts = binary.BigEndian.AppendUint32(opts, a)
					opts = binary.BigEndian.AppendUint32(opts, b)
				}
				if len(opts) > 40 {
					opts = opts[:40]
				}
			case 8:
				flags |= 1
				if r.IntN(3) == 0 {
					pc.seq++
				}
			case 9:
				win = uint16(r.IntN(3))
			case 10:
				flags = byte(r.IntN(256))
				seq += uint32(r.IntN(4))
			case 11:
				if r.IntN(10) == 0 {
					flags = 4
					seq += uint32(r.IntN(3)) - 1
				}
			case 12:
				opts = make([]byte, 4*r.IntN(11))
				for i := range opts {
					opts[i] = byte(r.IntN(12))
				}
			case 13:
				ack = pc.ack + uint32(r.IntN(1<<20)) - 1<<19
				data = make([]byte, r.IntN(100))
			}
			if len(opts) > 40 {
				opts = opts[:40]
			}
			if len(data) > 60000 {
				data = data[:60000]
			}
			b := ipOf(src(plan, pc.dst), pc.dst, 6, seg(pc.src, pc.dport, seq, ack, flags, win, opts, data))
			if r.IntN(100) == 0 {
				b[r.IntN(len(b))] ^= byte(1 << r.IntN(8))
			}
			if _, err := unix.Write(fd, b); errors.Is(err, unix.EAGAIN) {
				break
			}
		}
		if mode == 2 {
			time.Sleep(time.Millisecond)
		}
	}
}

func src(p link.Addresses, dst netip.Addr) netip.Addr {
	if dst.Is4() {
		return p.Box4
	}
	return p.Box6
}
