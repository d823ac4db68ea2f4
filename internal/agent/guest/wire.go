package guest

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// What an agent may send, in bytes, beyond what is read as answers.
const (
	idleBytes = 50 << 20                 // on a connection: all windows of slow readers, and more
	callBytes = window/overhead + 16<<10 // for each call, times overhead: its window, headers
	overhead  = 4                        // times the bytes of bodies, for many small frames
)

var (
	errIdle  = errors.New("read from agent: frames without end that carry nothing")
	errFrame = errors.New("read from agent: a frame that HTTP/2 does not have")
)

// wire is the byte stream below HTTP/2. It ends a connection on which much comes
// and little of it is an answer: pings, settings, empty frames and data for
// streams that nobody reads cost the host as much as the box, and no window
// holds them back. So does a frame of a type that is not in RFC 9113 6, since
// net/http writes a line to the host's log for each; a PRIORITY frame, which
// says nothing any more, is one of those.
type wire struct {
	net.Conn
	head    []byte        // of a frame, as far as it has come
	payload int           // bytes of the frame that have not come
	read    atomic.Int64  // bytes
	allowed atomic.Int64  // bytes
	last    atomic.Int64  // time of the last byte, Unix nanoseconds
	ended   chan struct{} // closed when nothing more comes
	once    sync.Once
}

func newWire(c net.Conn) *wire {
	w := &wire{Conn: c, ended: make(chan struct{})}
	w.allowed.Store(idleBytes)
	w.last.Store(time.Now().UnixNano())
	return w
}

// allow notes n bytes of a body, of either direction.
func (w *wire) allow(n int) { w.allowed.Add(int64(n) * overhead) }

func (w *wire) lastRead() time.Time { return time.Unix(0, w.last.Load()) }

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.once.Do(func() { close(w.ended) })
	}
	if n > 0 {
		w.last.Store(time.Now().UnixNano())
		if !w.frames(p[:n]) {
			return 0, errFrame
		}
		if w.read.Add(int64(n)) > w.allowed.Load() {
			return 0, errIdle
		}
	}
	return n, err
}

// frames goes over the heads of frames (RFC 9113 4.1: three bytes of length, one
// of type, five more) and reports whether net/http knows their types.
func (w *wire) frames(p []byte) bool {
	const size, priority, continuation = 9, 2, 9
	for len(p) > 0 {
		if w.payload > 0 {
			n := min(w.payload, len(p))
			w.payload, p = w.payload-n, p[n:]
			continue
		}
		n := min(size-len(w.head), len(p))
		w.head, p = append(w.head, p[:n]...), p[n:]
		if len(w.head) < size {
			return true
		}
		if kind := w.head[3]; kind == priority || kind > continuation {
			return false
		}
		w.payload = int(w.head[0])<<16 | int(w.head[1])<<8 | int(w.head[2])
		w.head = w.head[:0]
	}
	return true
}
