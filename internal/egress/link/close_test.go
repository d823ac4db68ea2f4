package link

import (
	"context"
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A box that begins connections and never answers the greeting has no say in when
// its wire ends, nor in how long what waits for it is held.
func TestAWireEndsAtOnceWhileTheBoxBeginsConnections(t *testing.T) {
	for range 60 {
		pair := seqpacket(t)
		var flows atomic.Int64
		j := &judge{tcp: func(f *Flow) {
			flows.Add(1)
			defer flows.Add(-1)
			if c, err := f.Accept(); err == nil {
				c.Abort()
			}
		}}
		l, err := Open(Config{FD: pair[0], Kind: Seqpacket, Offload: true, Addresses: Plan()}, j)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- l.Run(context.Background()) }()
		begun, written := make(chan struct{}), make(chan struct{})
		go func() { // until the wire has ended
			defer close(written)
			for i := 1; ; i++ {
				b := syn(80)
				binary.BigEndian.PutUint16(b, uint16(20000+i%maxPending))
				if _, err := unix.Write(pair[1], ip4(protoTCP, "203.0.113.1", b)); err != nil {
					return
				}
				if i == 100 {
					close(begun)
				}
			}
		}()
		<-begun
		closed := make(chan error, 1)
		began := time.Now()
		go func() {
			err := l.Close()
			if rerr := <-done; err == nil {
				err = rerr
			}
			for flows.Load() > 0 {
				time.Sleep(time.Millisecond)
			}
			closed <- err
		}()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the wire does not end; %d flows", flows.Load())
		}
		// Greetings that nobody answers are given up after more than a minute.
		if took := time.Since(began); took > 20*time.Second {
			t.Fatalf("the wire ended after %v", took)
		}
		<-written // or it goes on in another test, in which the number is another wire's
		unix.Close(pair[1])
	}
}

// A message may be longer than the packet in it says that it is. What the stack keeps
// of it is the packet: else segments of one byte would each hold 64 KiB.
func TestASmallPacketInALargeMessageHoldsNoMoreThanItself(t *testing.T) {
	accepted := make(chan *Conn, 1)
	j := &judge{tcp: func(f *Flow) {
		if c, err := f.Accept(); err == nil {
			accepted <- c
		}
	}}
	l, box := wire(t, j)
	send(t, box, ip4(protoTCP, "203.0.113.1", syn(80)))
	answer := receive(box)
	if len(answer) < 40 || answer[33]&0x12 != 0x12 {
		t.Fatalf("the greeting is %x", answer)
	}
	theirs := binary.BigEndian.Uint32(answer[24:])
	segment := func(seq uint32, data int, message int) []byte {
		b := append(syn(80), make([]byte, data)...)
		binary.BigEndian.PutUint32(b[4:], seq)
		binary.BigEndian.PutUint32(b[8:], theirs+1)
		b[13] = 0x10
		p := ip4(protoTCP, "203.0.113.1", b)
		return append(p, make([]byte, max(0, message-len(p)))...)
	}
	send(t, box, segment(1, 0, 0))
	c := <-accepted
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	send(t, box, segment(1, 40_000, 0)) // large, so that the next one is read as a large one
	for i := range uint32(400) {
		send(t, box, segment(100_000+2*i, 1, 60_000)) // with gaps between them: they are kept
	}
	until(t, "all have been read", func() bool { return l.Counts().Packets == 403 })
	time.Sleep(300 * time.Millisecond) // what the stack does with the last ones
	if after := held(); after > before+4<<20 {
		t.Errorf("400 bytes hold %d KiB", (after-before)>>10)
	}
	c.Abort()
	for { // to the last packet, else the wire ends with an error
		b := receive(box)
		if b == nil {
			t.Fatal("no reset comes")
		}
		if b[33]&4 != 0 {
			break
		}
	}
}
