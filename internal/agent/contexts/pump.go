package contexts

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// maxPipe is how many bytes a pipe can hold (fs.pipe-max-size, pipe(7)).
const maxPipe = 1 << 20

// pump reads a pipe as fast as it is written, for as long as it is open, and can
// be asked to have read all that was written up to now.
//
// Somebody may hold the pipe's other end for ever (a program that was left
// behind), so its end is no sign that everything has come; that the kernel has
// no more bytes for us is.
type pump struct {
	f    *os.File
	raw  syscall.RawConn
	sink func([]byte)
	over chan struct{}

	mu   sync.Mutex
	asks []chan struct{}
}

// newPump starts to read f, which must be non-blocking, as ends of [os.Pipe]
// are. The sink is called by one goroutine at a time.
func newPump(f *os.File, sink func([]byte)) (*pump, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &pump{f: f, raw: raw, sink: sink, over: make(chan struct{})}
	go p.run()
	return p, nil
}

func (p *pump) run() {
	defer close(p.over)
	buf := make([]byte, 32<<10)
	for {
		n, err := p.read(buf, true)
		if n > 0 {
			p.sink(buf[:n])
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !p.catchUp(buf) {
				return
			}
		case err != nil || n == 0:
			return
		}
	}
}

// read is one read(2). If wait is false it returns EAGAIN rather than wait.
func (p *pump) read(buf []byte, wait bool) (n int, err error) {
	try := func(fd uintptr) bool {
		for {
			n, err = syscall.Read(int(fd), buf)
			if err != syscall.EINTR {
				break
			}
		}
		return err != syscall.EAGAIN
	}
	if wait {
		if e := p.raw.Read(try); e != nil {
			return 0, e
		}
	} else if e := p.raw.Control(func(fd uintptr) { try(fd) }); e != nil {
		return 0, e
	}
	return max(n, 0), err
}

// catchUp reads what there is and answers those who asked for that. It reports
// whether there may be more. Whoever writes without end is not waited for: what
// was there when we were asked fits into a pipe.
func (p *pump) catchUp(buf []byte) bool {
	p.f.SetReadDeadline(time.Time{})
	p.mu.Lock()
	asks := p.asks
	p.asks = nil
	p.mu.Unlock()
	defer func() {
		for _, a := range asks {
			close(a)
		}
	}()
	for got := 0; got < maxPipe; {
		n, err := p.read(buf, false)
		if n > 0 {
			p.sink(buf[:n])
		}
		switch {
		case err == syscall.EAGAIN:
			return true
		case err != nil || n == 0:
			return false
		}
		got += n
	}
	return true
}

// drain returns when all that was in the pipe at its call has reached the sink.
func (p *pump) drain() {
	done := make(chan struct{})
	p.mu.Lock()
	p.asks = append(p.asks, done)
	p.mu.Unlock()
	p.f.SetReadDeadline(time.Unix(1, 0))
	select {
	case <-done:
	case <-p.over:
	}
}

// close ends the reading.
func (p *pump) close() {
	p.f.Close()
	<-p.over
}
