package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"sync"
	"syscall"

	"github.com/sunaba-dev/sunaba/internal/agent/clock"
)

// life is one interpreter process, from its start to its end.
type life struct {
	lang     *language
	clock    *clock.Clock
	proc     Running
	commands *os.File
	lines    chan []byte // to the interpreter
	// messages are what the driver says. Somebody has to listen until dead is
	// closed: at its end all that it had said by then is passed on first.
	messages chan message
	quit     chan struct{} // closed when nobody listens any more
	dead     chan struct{} // closed when it is over and all that it wrote was read

	out, err, control *pump

	mu     sync.Mutex
	reason string // why it is over
	rest   []byte // of the driver's line
}

// begin starts an interpreter. Its text goes to the sink, by two goroutines.
func begin(start Starter, lang *language, c *clock.Clock, p Program, text func(stream int, b []byte)) (*life, error) {
	var mine, theirs []*os.File
	closeAll := func(fs []*os.File) {
		for _, f := range fs {
			f.Close()
		}
	}
	defer func() { closeAll(theirs) }()
	pipe := func(reads bool) (our, their *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("cannot make a pipe: %w", err)
		}
		our, their = r, w
		if !reads {
			our, their = w, r
		}
		mine, theirs = append(mine, our), append(theirs, their)
		return our, their, nil
	}
	commands, told, err1 := pipe(false)
	driver, d, err2 := pipe(false)
	out, o, err3 := pipe(true)
	errs, e, err4 := pipe(true)
	control, t, err5 := pipe(true)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		closeAll(mine)
		return nil, err
	}
	p.Stdout, p.Stderr = o, e
	if lang.reads {
		p.Stdin, p.Extra = told, []*os.File{t}
	} else {
		p.Extra = []*os.File{told, t, d}
	}
	l := &life{lang: lang, clock: c, commands: commands, lines: make(chan []byte, 16), messages: make(chan message),
		quit: make(chan struct{}), dead: make(chan struct{})}
	var err error
	for _, argv := range lang.argvs {
		p.Argv = argv
		if l.proc, err = start(p); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		closeAll(mine)
		return nil, err
	}
	// An own file of non-blocking pipes: no error is possible.
	l.out, _ = newPump(out, func(b []byte) { text(0, b) })
	var noise *regexp.Regexp
	if lang.noise != "" {
		noise = regexp.MustCompile(fmt.Sprintf(lang.noise, l.proc.PID()))
	}
	l.err, _ = newPump(errs, func(b []byte) {
		if noise != nil {
			b = noise.ReplaceAll(b, nil)
		}
		text(1, b)
	})
	l.control, _ = newPump(control, l.hear)
	go l.write()
	if lang.reads {
		l.say([]byte(lang.driver))
		driver.Close()
	} else {
		go func() {
			driver.Write([]byte(lang.driver)) // an interpreter that does not read it is never ready
			driver.Close()
		}()
	}
	go l.wait()
	return l, nil
}

// write passes lines on. An interpreter that does not read them blocks nobody
// else.
func (l *life) write() {
	for {
		select {
		case b := <-l.lines:
			if _, err := l.commands.Write(b); err != nil {
				return // it is over, which wait sees
			}
		case <-l.dead:
			return
		}
	}
}

func (l *life) say(b []byte) {
	select {
	case l.lines <- b:
	default:
		l.end("the interpreter does not read what it is told")
	}
}

// hear takes bytes of the driver and passes on whole lines.
func (l *life) hear(b []byte) {
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] != '\n' {
			i++
		}
		l.rest = append(l.rest, b[:i]...)
		if len(l.rest) > maxLine {
			l.end("the driver's channel carries a line that is too long: the code has tampered with it")
			l.rest = nil
			return
		}
		if i == len(b) {
			return
		}
		b = b[i+1:]
		m, err := parse(l.rest)
		l.rest = l.rest[:0]
		if cap(l.rest) > 64<<10 {
			l.rest = nil
		}
		if err != nil {
			l.violated(err)
			return
		}
		select {
		case l.messages <- m:
		case <-l.quit:
			return
		}
	}
}

// violated ends an interpreter that does not keep to the protocol: what it says
// of its cells is worth nothing from here on.
func (l *life) violated(err error) {
	l.end(fmt.Sprintf("the driver's channel was tampered with: %v", err))
}

// end ends it, for a reason. The first reason counts.
func (l *life) end(reason string) {
	l.mu.Lock()
	if l.reason == "" {
		l.reason = reason
	}
	l.mu.Unlock()
	l.proc.Signal(syscall.SIGKILL, true)
}

// why is the reason of its end.
func (l *life) why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// wait sees the end and what was written before it.
func (l *life) wait() {
	status, err := l.proc.Wait()
	l.proc.Signal(syscall.SIGKILL, true) // what it has started goes with it
	l.settle()
	l.control.drain()
	close(l.quit)
	l.mu.Lock()
	if l.reason == "" {
		l.reason = describe(status, err)
	}
	l.mu.Unlock()
	for _, p := range []*pump{l.out, l.err, l.control} {
		p.close()
	}
	l.commands.Close()
	close(l.dead)
}

// settle returns when what was printed up to now is in the cell's story.
func (l *life) settle() {
	l.out.drain()
	l.err.drain()
}

// describe says how the interpreter ended when nobody of us ended it.
func describe(status syscall.WaitStatus, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("the interpreter is gone: %v", err)
	case status.Signaled():
		return fmt.Sprintf("the interpreter was ended by signal %d (%v)", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("the interpreter has exited with status %d", status.ExitStatus())
}
