package guest

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// What an agent may send, in bytes, beyond what is read as answers.
const (
	idleBytes = 50 << 20                 // on a connection: all windows of slow readers, and more
	callBytes = window/overhead + 16<<10 // for each call, times overhead: its window, headers
	overhead  = 4                        // times the bytes of bodies, for many small frames
)

var errIdle = errors.New("read from agent: frames without end that carry nothing")

// wire is the byte stream below HTTP/2. It ends a connection on which much comes
// and little of it is an answer: pings, settings, empty frames and data for
// streams that nobody reads cost the host as much as the box, and no window
// holds them back.
type wire struct {
	net.Conn
	read    atomic.Int64 // bytes
	allowed atomic.Int64 // bytes
	last    atomic.Int64 // time of the last byte, Unix nanoseconds
}

func newWire(c net.Conn) *wire {
	w := &wire{Conn: c}
	w.allowed.Store(idleBytes)
	w.last.Store(time.Now().UnixNano())
	return w
}

// allow notes n bytes of a body, of either direction.
func (w *wire) allow(n int) { w.allowed.Add(int64(n) * overhead) }

func (w *wire) lastRead() time.Time { return time.Unix(0, w.last.Load()) }

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.last.Store(time.Now().UnixNano())
		if w.read.Add(int64(n)) > w.allowed.Load() {
			return 0, errIdle
		}
	}
	return n, err
}
