// Package peek looks at the first bytes that a client sends, before anybody
// answers them: they say what the connection is and for whom.
//
// The bytes are kept and can be read again. The readers here are strict, since
// the upstream reads the same bytes with a reader of its own: what two readers
// could take for two things is an error.
package peek

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Max is how many first bytes are looked at. A client hello with keys for
// several algorithms has about 2 KiB.
const Max = 16 << 10

// Kind is what a client speaks.
type Kind string

const (
	TLS     Kind = "tls"
	HTTP1   Kind = "http1"
	HTTP2   Kind = "http2" // in the clear, by prior knowledge
	SSH     Kind = "ssh"
	Unknown Kind = "unknown"
)

// First is what was seen.
type First struct {
	Kind  Kind
	Hello Hello // for TLS
	// Bytes are all that was read. They must go first to whoever reads on. Rest
	// of them came behind a hello.
	Bytes []byte
	Rest  int
}

// ErrTimeout says that the client did not say enough in time.
var ErrTimeout = errors.New("read no whole first message in time")

// Read reads until the kind is known and, for TLS, the hello is whole. An error
// comes with what was read. The read deadline of c is gone afterwards.
func Read(c net.Conn, timeout time.Duration) (First, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return First{}, fmt.Errorf("cannot set a deadline: %w", err)
	}
	f, err := read(c)
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		err = ErrTimeout
	}
	if e := c.SetReadDeadline(time.Time{}); err == nil && e != nil {
		err = fmt.Errorf("cannot clear a deadline: %w", e)
	}
	return f, err
}

func read(c io.Reader) (First, error) {
	var f First
	var tls assembler
	buf := make([]byte, 2<<10)
	for {
		n, err := c.Read(buf[:min(len(buf), Max-len(f.Bytes))])
		f.Bytes = append(f.Bytes, buf[:n]...)
		if n > 0 {
			done, bad := f.look(buf[:n], &tls)
			if done || bad != nil {
				return f, bad
			}
			if len(f.Bytes) >= Max {
				return f, fmt.Errorf("read no whole first message in %d bytes", Max)
			}
		}
		if err != nil {
			return f, fmt.Errorf("read only %d bytes of a first message: %w", len(f.Bytes), err)
		}
	}
}

// look decides what the bytes so far are, the last of which are fresh; false
// means that more are needed.
func (f *First) look(fresh []byte, tls *assembler) (bool, error) {
	b := f.Bytes
	switch {
	case b[0] == recordHandshake:
		f.Kind = TLS
		whole, err := tls.feed(fresh)
		if whole {
			f.Rest = tls.rest
			f.Hello, err = parse(tls.msg)
		}
		return whole, err
	case prefix(b, "SSH-"):
		f.Kind = SSH
		return len(b) >= 4, nil
	case prefix(b, "PRI * HTTP/2.0\r\n"):
		f.Kind = HTTP2
		return len(b) >= 16, nil
	}
	f.Kind = Unknown
	for i, c := range b {
		if c == ' ' && i > 0 {
			f.Kind = HTTP1
			break
		}
		if c < 'A' || c > 'Z' || i >= maxMethod { // methods are judged later; a name in lower case is none
			return true, nil
		}
	}
	return f.Kind == HTTP1, nil
}

// maxMethod is the length of the longest registered method, in bytes.
const maxMethod = 24

// prefix reports whether b and p begin alike, as far as both go.
func prefix(b []byte, p string) bool {
	n := min(len(b), len(p))
	return string(b[:n]) == p[:n]
}
