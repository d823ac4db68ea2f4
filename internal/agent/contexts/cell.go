package contexts

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/clock"
)

// When what follows an interrupt, from one step to the next. An interpreter that
// still runs the cell after all of them is ended.
const (
	nudgeAfter = time.Second     // asked again, where asking can get lost
	groupAfter = time.Second     // SIGINT to its whole group: it may wait for a child
	killAfter  = 3 * time.Second // SIGKILL
)

// StuckAfter is how long an idle interpreter may leave a ping unanswered.
const StuckAfter = 10 * time.Second

// cell is one that was accepted.
type cell struct {
	id, code string
	timeout  time.Duration
	story    *story        // nil when it is no longer kept
	ask      chan struct{} // a caller wants it interrupted
	attached int           // callers that came and want it to end with them
}

// interrupt asks for an interrupt of a cell that runs.
func (c *cell) interrupt() {
	select {
	case c.ask <- struct{}{}:
	default: // it is asked already
	}
}

// run is one run of a cell, as the goroutine of its life sees it.
type run struct {
	l     *life
	c     *cell
	n     uint64
	began time.Duration // of the clock

	begun bool               // an interrupt will reach the cell
	why   pb.CellEnd_Outcome // of an interrupt that was sent, else unspecified
	stage int
	step  *clock.Timer // nil if there is none
	error bool         // it has told of one
}

// follow runs the cell to its end and returns what is to be told of that.
func (r *run) follow() *pb.CellEnd {
	r.l.say(r.l.lang.line(command{Op: "run", N: r.n, Code: r.c.code}))
	var deadline <-chan struct{}
	if r.c.timeout > 0 {
		t := r.l.clock.NewTimer(r.c.timeout)
		defer t.Stop()
		deadline = t.C
	}
	defer r.after(0)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var w watch
	for {
		select {
		case m := <-r.l.messages:
			if end := r.hear(m); end != nil {
				return end
			}
		case <-r.c.ask:
			r.interrupt(pb.CellEnd_OUTCOME_INTERRUPTED)
		case <-deadline:
			r.interrupt(pb.CellEnd_OUTCOME_TIMEOUT)
		case <-r.due():
			r.escalate()
		case <-tick.C:
			w.stopped(r.l)
		case <-r.l.dead:
			return r.end(pb.CellEnd_OUTCOME_DIED, r.l.why())
		}
	}
}

// after sets when the next step is due; 0 is never.
func (r *run) after(d time.Duration) {
	if r.step != nil {
		r.step.Stop()
		r.step = nil
	}
	if d > 0 {
		r.step = r.l.clock.NewTimer(d)
	}
}

func (r *run) due() <-chan struct{} {
	if r.step == nil {
		return nil
	}
	return r.step.C
}

func (r *run) end(outcome pb.CellEnd_Outcome, detail string) *pb.CellEnd {
	return &pb.CellEnd{Outcome: outcome, Count: uint32(r.n), Millis: uint64((r.l.clock.Now() - r.began).Milliseconds()), Detail: detail}
}

// hear takes what the driver says and returns the end if it is that.
func (r *run) hear(m message) *pb.CellEnd {
	switch {
	case m.Op == "pong":
	case m.Op == "ready", m.N > r.n:
		r.l.violated(fmt.Errorf("it tells of %s %d in cell %d", m.Op, m.N, r.n))
	case m.N < r.n:
		r.c.story.drop(m.size()) // of a cell that is over: somebody in the background
	case m.Op == "begin":
		r.begun = true
		if r.why != 0 {
			r.send()
		}
	case m.Op == "result":
		r.l.settle()
		r.c.story.result(m)
	case m.Op == "error":
		r.l.settle()
		r.error = true
		r.c.story.fail(m.Name, m.Value, m.Traceback)
	case m.Op == "end":
		r.l.settle()
		return r.end(r.outcome(m), "")
	}
	return nil
}

// outcome judges the end that the driver tells of.
func (r *run) outcome(m message) pb.CellEnd_Outcome {
	failed := m.Status == "error" || m.Status == "interrupted"
	interrupted := m.Status == "interrupted"
	if r.l.lang.reads {
		failed, interrupted = m.Code != 0, m.Code == 128+int(syscall.SIGINT)
		if failed && (r.why == 0 || !interrupted) {
			r.error = true
			r.c.story.fail("ExitStatus", fmt.Sprint(m.Code), "")
		}
	}
	switch {
	case r.why == pb.CellEnd_OUTCOME_TIMEOUT:
		// It may have caught the interrupt and ended well: too late.
		return r.why
	case r.why != 0 && interrupted:
		return r.why
	case failed && !r.error:
		r.c.story.fail("Error", "the cell failed, and its driver does not say why", "")
		return pb.CellEnd_OUTCOME_ERROR
	case failed:
		return pb.CellEnd_OUTCOME_ERROR
	}
	return pb.CellEnd_OUTCOME_OK
}

// interrupt begins to interrupt, for a reason; the first counts.
func (r *run) interrupt(why pb.CellEnd_Outcome) {
	if r.why != 0 {
		return
	}
	r.why = why
	r.after(nudgeAfter)
	if r.begun || r.l.lang.soft {
		r.send()
	}
}

// send sends the interrupt. Not before the cell has begun: a shell would throw
// away the half of its line that it has read, and run the other.
func (r *run) send() {
	if r.l.lang.soft {
		r.l.say(r.l.lang.line(command{Op: "interrupt", N: r.n}))
	} else {
		r.l.proc.Signal(syscall.SIGINT, r.l.lang.group)
	}
}

// escalate is what follows when that was not enough.
func (r *run) escalate() {
	r.stage++
	switch r.stage {
	case 1:
		// A shell that was interrupted between the cell and its end has forgotten
		// the end; a thread may have missed its moment.
		if r.l.lang.soft || r.l.lang.reads {
			r.l.say(r.l.lang.line(command{Op: "interrupt", N: r.n}))
		}
		r.after(groupAfter)
	case 2:
		if r.begun || r.l.lang.soft {
			r.l.proc.Signal(syscall.SIGINT, true)
		}
		r.after(killAfter)
	default:
		r.after(0)
		r.l.end(fmt.Sprintf("the cell did not react to an interrupt within %v, so the interpreter was ended", nudgeAfter+groupAfter+killAfter))
	}
}

// size is how many bytes of a message its reader would have got.
func (m *message) size() int64 {
	n := int64(len(m.Value)+len(m.Traceback)) + m.Dropped
	for _, data := range m.Forms {
		n += int64(len(data))
	}
	return n
}

// watch notices an interpreter that lives and does nothing.
type watch struct {
	stops int           // times in a row that it was seen stopped
	ping  uint64        // the last one
	waits bool          // for its answer
	sent  time.Duration // when it was sent, on the clock
}

// stopped ends an interpreter that was stopped by a signal: nobody in the box
// can be relied on to let it go on. Twice, since a tracer stops programs too.
func (w *watch) stopped(l *life) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.proc.PID())) // gone: wait sees it
	stat := string(b)
	// The state follows the name in brackets, which may contain any (proc(5)).
	if i := strings.LastIndexByte(stat, ')'); i < 0 || !strings.HasPrefix(stat[i:], ") T") {
		w.stops = 0
		return
	}
	if w.stops++; w.stops == 2 {
		l.end("the interpreter was stopped by a signal, so it was ended")
	}
}

// idle is called every second while no cell runs.
func (w *watch) idle(l *life) {
	w.stopped(l)
	switch {
	case !l.lang.pings:
	case !w.waits:
		w.ping++
		w.waits, w.sent = true, l.clock.Now()
		l.say(l.lang.line(command{Op: "ping", N: w.ping}))
	case l.clock.Now()-w.sent > StuckAfter:
		l.end(fmt.Sprintf("the interpreter runs no cell and does not answer for %v, so it was ended", StuckAfter))
	}
}

// pong takes an answer.
func (w *watch) pong(n uint64) {
	if n == w.ping {
		w.waits = false
	}
}
