package servertest

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// window is how far a program may be ahead of its slowest follower, in bytes.
const window = 256 << 10

// program is one that runs, or has ended.
type program struct {
	spec box.ProcessSpec
	pid  int
	dead chan struct{} // closed at its end

	mu      sync.Mutex
	changed *sync.Cond
	out     [2]tail
	holds   map[*hold]struct{}
	end     *box.End
	started time.Time
	in      []byte // not read yet
	inAt    int64  // position behind what was written
	inEnd   bool
	size    box.WindowSize

	followers int // that ever came
}

// tail is what is kept of a stream: data begins at position base.
type tail struct {
	base int64
	data []byte
}

func (t *tail) end() int64 { return t.base + int64(len(t.data)) }

// hold keeps what a follower has not had. One that was cut off keeps it until
// a time, or until another follower comes.
type hold struct {
	at     [2]int64
	until  time.Time // zero while it follows
	number int       // in the order of their coming
}

// Start implements box.Guest. The programs are:
//
//	echo WORDS     writes them and a newline
//	both           a line to stdout, one to stderr
//	bytes HEX...   writes each as one piece
//	flood N        writes N bytes: see [Pattern]
//	cat            writes what it reads
//	exit N         returns N
//	wait           goes on until it is ended
//	sh -c LINE     the same, as words of a line
func (g *Guest) Start(ctx context.Context, spec box.ProcessSpec) (box.Process, error) {
	_, cancel, err := g.in(ctx)
	if err != nil {
		return box.Process{}, err
	}
	defer cancel()
	run, err := command(spec.Argv)
	if err != nil {
		return box.Process{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.programs {
		if spec.Tag != "" && p.spec.Tag == spec.Tag && p.describe().End == nil {
			return box.Process{}, box.Errorf(box.Conflict, "start", "cannot start: the tag %q is taken", spec.Tag)
		}
	}
	g.lastPID++
	p := &program{spec: spec, pid: g.lastPID, dead: make(chan struct{}), holds: map[*hold]struct{}{}, started: time.Now(), inEnd: !spec.Stdin}
	p.changed = sync.NewCond(&p.mu)
	if p.spec.Keep == 0 {
		p.spec.Keep = box.DefaultKeep
	}
	// Who started it has the time of a cut-off follower to come and look.
	p.holds[&hold{until: time.Now().Add(box.ReplayTime)}] = struct{}{}
	g.programs = append(g.programs, p)
	if spec.Timeout > 0 {
		time.AfterFunc(spec.Timeout, func() { p.finish(box.End{Cause: box.Deadline}) })
	}
	go func() { p.finish(box.End{Cause: box.Exited, ExitCode: run(p)}) }()
	return p.describe(), nil
}

func command(argv []string) (func(*program) int, error) {
	if len(argv) == 3 && strings.HasSuffix(argv[0], "sh") && argv[1] == "-c" {
		argv = strings.Fields(argv[2])
	}
	name := ""
	if len(argv) > 0 {
		name = argv[0]
	}
	first := 0
	if len(argv) > 1 {
		first, _ = strconv.Atoi(argv[1])
	}
	switch name {
	case "echo":
		return func(p *program) int { p.write(0, []byte(strings.Join(argv[1:], " ")+"\n")); return 0 }, nil
	case "both":
		return func(p *program) int { p.write(0, []byte("to stdout\n")); p.write(1, []byte("to stderr\n")); return 0 }, nil
	case "bytes":
		return func(p *program) int {
			for _, h := range argv[1:] {
				b, _ := hex.DecodeString(h)
				p.write(0, b)
			}
			return 0
		}, nil
	case "flood":
		return func(p *program) int { p.flood(int64(first)); return 0 }, nil
	case "cat":
		return func(p *program) int { p.copyInput(); return 0 }, nil
	case "exit":
		return func(*program) int { return first }, nil
	case "wait":
		return func(p *program) int { <-p.dead; return 0 }, nil
	}
	return nil, box.Errorf(box.NotFound, "start", "cannot start %q: there is no such program", name)
}

// Pattern fills p with what flood writes from position at on: text that differs
// at every offset.
func Pattern(p []byte, at int64) {
	for n := 0; n < len(p); {
		line := fmt.Sprintf("%015d\n", (at+int64(n))/16)
		n += copy(p[n:], line[(at+int64(n))%16:])
	}
}

func (p *program) flood(n int64) {
	buf := make([]byte, 32<<10)
	for at := int64(0); at < n; {
		piece := buf[:min(int64(len(buf)), n-at)]
		Pattern(piece, at)
		if !p.write(0, piece) {
			return
		}
		at += int64(len(piece))
	}
}

func (p *program) copyInput() {
	for {
		p.mu.Lock()
		for len(p.in) == 0 && !p.inEnd && p.end == nil {
			p.changed.Wait()
		}
		piece := p.in
		p.in = nil
		over := p.end != nil || len(piece) == 0
		p.mu.Unlock()
		if over || !p.write(0, piece) {
			return
		}
	}
}

// write waits until there is room, and reports whether the program lives.
func (p *program) write(stream int, b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.out[stream]
	for p.end == nil && t.end()-p.slowest(stream) >= window {
		p.changed.Wait()
	}
	if p.end != nil {
		return false
	}
	t.data = append(t.data, b...)
	if drop := min(t.end()-p.spec.Keep, p.slowest(stream)) - t.base; drop > int64(len(t.data)/2) {
		t.base, t.data = t.base+drop, slices.Clone(t.data[drop:])
	}
	p.changed.Broadcast()
	return true
}

// slowest is the position of the follower that is furthest behind.
func (p *program) slowest(stream int) int64 {
	least := p.out[stream].end()
	for h := range p.holds {
		if !h.until.IsZero() && time.Now().After(h.until) {
			delete(p.holds, h)
			continue
		}
		least = min(least, h.at[stream])
	}
	return least
}

func (p *program) finish(e box.End) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return
	}
	e.Stdout, e.Stderr, e.Ended = p.out[0].end(), p.out[1].end(), time.Now()
	p.end = &e
	close(p.dead)
	p.changed.Broadcast()
}

func (p *program) describe() box.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return box.Process{PID: p.pid, Tag: p.spec.Tag, Argv: p.spec.Argv, Dir: p.spec.Dir, User: box.UserOrdinary, TTY: p.spec.TTY != nil, Started: p.started, End: p.end}
}
