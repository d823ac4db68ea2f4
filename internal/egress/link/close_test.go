package link

import (
	"context"
	"encoding/binary"
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
		begun := make(chan struct{})
		go func() { // until the wire has ended
			for i := uint16(1); ; i++ {
				b := syn(80)
				binary.BigEndian.PutUint16(b, 20000+i%maxPending)
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
		case <-time.After(5 * time.Second):
			t.Fatal("the wire does not end")
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Fatalf("the wire ended after %v", took)
		}
		unix.Close(pair[1])
	}
}
