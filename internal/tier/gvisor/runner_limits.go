package gvisor

import (
	"fmt"
	"os"
	"sync"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// limitReader turns the bytes that the guest kernel writes about limits into
// events. Each byte is told once, and none after a tell that came later. All others
// are what it, or the agent, said in a panic.
type limitReader struct {
	mu    sync.Mutex
	pipe  *os.File // nil until start
	each  func(limitKind)
	panic []byte
}

// panicBytes is how much of a panic is kept: it begins with what it was, and where.
const panicBytes = 1024

// start returns the end of the pipe that is for the guest kernel.
func (l *limitReader) start(each func(limitKind)) (*os.File, error) {
	rd, wr, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make pipe: %w", err)
	}
	rc, err := rd.SyscallConn()
	if err != nil {
		rd.Close()
		wr.Close()
		return nil, fmt.Errorf("cannot read pipe: %w", err)
	}
	l.pipe, l.each = rd, each
	go func() {
		defer rd.Close()
		_ = rc.Read(func(uintptr) bool { return l.tell() }) // called whenever there may be something
	}()
	return wr, nil
}

// tell passes on what has been written up to now and reports whether the pipe
// has ended.
func (l *limitReader) tell() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pipe == nil {
		return true
	}
	buf := make([]byte, 16)
	for {
		n, err := host.ReadNow(l.pipe, buf)
		for _, k := range buf[:n] {
			if k := limitKind(k); k <= limitAttribute {
				l.each(k)
			} else if len(l.panic) < panicBytes {
				l.panic = append(l.panic, byte(k))
			}
		}
		if err != nil {
			return false // nothing there now
		}
		if n == 0 {
			return true
		}
	}
}

// lastWords is the beginning of what the guest kernel or the agent said in a panic, after a
// colon; empty if there was none.
func (l *limitReader) lastWords() string {
	l.tell()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.panic) == 0 {
		return ""
	}
	return ": " + string(l.panic)
}
