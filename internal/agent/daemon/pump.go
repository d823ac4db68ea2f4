package daemon

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// errNoRoom says that a follower has to take something first.
var errNoRoom = errors.New("no room")

// drainTime is how long a stream may stay open after the program's end because
// something in the background still holds it, and drainBytes how much more than
// was in it then may come meanwhile.
const (
	drainTime  = 200 * time.Millisecond
	drainBytes = 256 << 10
)

// scratches are the buffers that bytes pass through: one is held only while
// bytes are there.
type scratches struct{ sync.Pool }

func newScratches() *scratches {
	return &scratches{sync.Pool{New: func() any { return new([most]byte) }}}
}

// pump moves what comes from f to a ring until f ends, or until shortly after
// the process did. It holds no thread and no buffer while it waits.
type pump struct {
	out     *output
	i       int
	f       *os.File
	scratch *scratches
	exited  <-chan struct{} // closed when the process has ended
	woken   <-chan struct{} // closed after that, when whoever waited in f was woken
}

func (p *pump) run() {
	for {
		if !p.waitRoom() {
			break
		}
		_, err := p.read()
		if errors.Is(err, errNoRoom) {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break // the process ended
		}
		if err != nil {
			return // end of file, or a terminal whose other side is closed
		}
	}
	<-p.woken // before deadlines are set here
	p.drain()
}

// waitRoom waits until something may be taken, and reports false when the
// process has ended.
func (p *pump) waitRoom() bool {
	for {
		p.out.mu.Lock()
		n, again := p.out.roomFor(p.i, p.out.clock.Now())
		ended := p.out.ended
		p.out.mu.Unlock()
		if ended {
			return false
		}
		if n > 0 {
			return true
		}
		t := time.NewTimer(again)
		select {
		case <-p.out.rings[p.i].room:
		case <-t.C:
		case <-p.exited:
		}
		t.Stop()
	}
}

// errEnd says that a stream has ended.
var errEnd = errors.New("end of stream")

// read waits for bytes and moves them.
func (p *pump) read() (n int, err error) {
	rc, err := p.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	rerr := rc.Read(func(fd uintptr) bool {
		n, err = p.now(int(fd))
		return err != unix.EAGAIN
	})
	if rerr != nil {
		return 0, rerr
	}
	return n, err
}

// now moves what is there.
func (p *pump) now(fd int) (int, error) {
	buf := p.scratch.Get().(*[most]byte)
	defer p.scratch.Put(buf)
	n, err := p.out.readInto(p.i, fd, buf[:])
	if n == 0 && err == nil {
		err = errEnd
	}
	return n, err
}

// drain takes what was there when the process ended, and what comes shortly
// after: of a pipeline that finishes, but not all that a process in the
// background has to say.
func (p *pump) drain() {
	rc, err := p.f.SyscallConn()
	if err != nil {
		return
	}
	there := 0
	_ = rc.Control(func(fd uintptr) { there, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	deadline := time.Now().Add(drainTime)
	for taken := 0; taken < there+drainBytes; {
		var n int
		var err error
		if cerr := rc.Control(func(fd uintptr) { n, err = p.now(int(fd)) }); cerr != nil {
			return
		}
		if err == unix.EAGAIN {
			_ = p.f.SetReadDeadline(deadline)
			n, err = p.read()
		}
		taken += n
		if err != nil || taken >= there && !time.Now().Before(deadline) {
			return
		}
	}
}
