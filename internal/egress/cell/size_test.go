package cell

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/egress/dial"
	"github.com/sunaba-dev/sunaba/internal/egress/link"
)

// What a cell may cost, in bytes of this process.
const (
	idleBudget   = 100 << 20 / 1000
	activeBudget = 600 << 10
)

// used returns the memory that the process holds and does not give back.
func used() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func TestAThousandQuietWiresCostLittle(t *testing.T) {
	const n = 1000
	p := load(t, rawPolicy)
	var box []int
	before := used()
	for range n {
		pair := seqpacket(t)
		c, err := New(Config{ID: "b", Policy: p, Wire: link.Config{FD: pair[0], Kind: link.Seqpacket, Addresses: link.Plan()}, Dialer: &dial.Dialer{}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = c.Run(t.Context()) }()
		t.Cleanup(func() { c.Close() })
		box = append(box, pair[1])
		t.Cleanup(func() { unix.Close(pair[1]) })
	}
	waitFor(t, "all wait for packets", func() bool { return runtime.NumGoroutine() > n })
	each := (used() - before) / n
	t.Logf("a quiet wire costs %d bytes", each)
	if each > idleBudget {
		t.Errorf("a quiet wire costs %d bytes, at most %d", each, idleBudget)
	}
	runtime.KeepAlive(box)
}

func TestAnActiveWireCostsLittle(t *testing.T) {
	const n = 20
	w := newWorld()
	w.host(t, "a.example.com", "8.8.4.4", "5432", echo)
	var farms []*farm
	for range n { // with the stacks of the boxes, which are not counted
		f := newFarm(t, w, load(t, rawPolicy))
		f.lookup("a.example.com")
		farms = append(farms, f)
	}
	before := used()
	for _, f := range farms {
		c := f.dialName("a.example.com", "5432")
		for range 20 {
			_, _ = c.Write(make([]byte, 10000))
			if _, err := io.ReadFull(c, make([]byte, 10000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, f := range farms {
		if !f.cell.wire.Active() || f.cell.Stats().Open != 1 {
			t.Fatal("a wire is not active")
		}
	}
	each := (used() - before) / n
	t.Logf("an active wire with its connection, both ends of it and the upstream's costs %d bytes", each)
	if each > activeBudget {
		t.Errorf("an active wire costs %d bytes, at most %d", each, activeBudget)
	}
}

// The speed of one connection through a cell, beside one that goes directly.
// Both ends are stacks in user space, so a box of gVisor's is like this.
func BenchmarkDownload(b *testing.B) {
	const size = 64 << 20
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	chunk := make([]byte, 1<<20)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.ReadFull(c, make([]byte, 1))
				for range size / len(chunk) {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			}()
		}
	}()
	fetch := func(b *testing.B, dial func() net.Conn) {
		b.SetBytes(size)
		for b.Loop() {
			c := dial()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, _ = c.Write([]byte{1})
			if n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, 1<<18)); n != size {
				b.Fatal(n, err)
			}
			c.Close()
		}
	}
	b.Run("direct", func(b *testing.B) {
		fetch(b, func() net.Conn {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			return c
		})
	})
	b.Run("cell", func(b *testing.B) {
		w := newWorld()
		w.at["10.9.9.9:5432"] = l.Addr()
		f := newFarm(b, w, load(b, "  - { cidr: 10.9.9.0/24, ports: [5432], protocol: tcp, sink: internal }\n"))
		fetch(b, func() net.Conn {
			c, err := f.dial("10.9.9.9:5432")
			if err != nil {
				b.Fatal(err)
			}
			return c
		})
	})
}

// A connection, one byte there and back, and its end.
func BenchmarkConnect(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { echo(c); c.Close() }()
		}
	}()
	once := func(b *testing.B, c net.Conn, err error) {
		if err != nil {
			b.Fatal(err)
		}
		_, _ = c.Write([]byte{1})
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			c, err := net.Dial("tcp", l.Addr().String())
			once(b, c, err)
		}
	})
	b.Run("cell", func(b *testing.B) {
		w := newWorld()
		w.at["10.9.9.9:5432"] = l.Addr()
		f := newFarm(b, w, load(b, "  - { cidr: 10.9.9.0/24, ports: [5432], protocol: tcp, sink: internal }\n"))
		for b.Loop() {
			c, err := f.dial("10.9.9.9:5432")
			once(b, c, err)
		}
	})
}
