package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// beatTime is how long a stream may be silent.
const beatTime = 5 * time.Second

// follow begins to read at the given positions; -1 is the earliest that is kept,
// and so is one that is no more.
func (o *output) follow(from [2]int64) (*follower, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.followers) >= maxFollowers {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cannot follow: %d do already", maxFollowers))
	}
	for old := range o.followers {
		if old.ctx != nil && old.ctx.Err() != nil {
			o.cutOff(old) // its call has not noticed yet
		}
	}
	f := &follower{wake: make(chan struct{}, 1)}
	for i := range o.rings {
		r := &o.rings[i]
		if from[i] > 0 && uint64(from[i]) > r.end {
			return nil, wrong("cannot follow from position %d: %d bytes were written", from[i], r.end)
		}
		f.from[i] = r.start
		if from[i] >= 0 {
			f.from[i] = max(uint64(from[i]), r.start)
		}
	}
	f.pos = f.from
	o.followers[f] = struct{}{}
	o.retake(f)
	return f, nil
}

// retake gives up the place that was kept for a reader who has come back: one
// whose bounds hold where it goes on. What it had not read of what was on the way
// to it may reach back further than those, as far as buffers do that are not
// ours; then it is the nearest of those ahead of it. The follower itself now
// holds what the place did.
func (o *output) retake(f *follower) {
	best := -1
	for j, l := range o.leases {
		if f.from[0] > l.high[0] || f.from[1] > l.high[1] {
			continue
		}
		if l.low[0] <= f.from[0] && l.low[1] <= f.from[1] {
			best = j
			break
		}
		if best < 0 || l.high[0]+l.high[1] < o.leases[best].high[0]+o.leases[best].high[1] {
			best = j
		}
	}
	if best >= 0 {
		o.leases = slices.Delete(o.leases, best, best+1)
		f.took = true
	}
}

// succeeded reports whether a reader that is cut off has come back already,
// before its end was noticed here: somebody began where it may have been.
func (o *output) succeeded(f *follower) bool {
	for g := range o.followers {
		if !g.took && g.from != f.from && f.from[0] <= g.from[0] && g.from[0] <= f.pos[0] && f.from[1] <= g.from[1] && g.from[1] <= f.pos[1] {
			g.took = true
			return true
		}
	}
	return false
}

// leave ends the reading. One that was cut keeps its place for a while.
func (o *output) leave(f *follower, cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, reads := o.followers[f]; reads && cut {
		o.cutOff(f)
	}
	delete(o.followers, f)
	o.wakePumps()
}

// cutOff keeps a reader's place.
func (o *output) cutOff(f *follower) {
	delete(o.followers, f)
	if o.succeeded(f) {
		return
	}
	l := lease{high: f.pos, until: o.clock.Now() + leaseTime}
	for i := range l.low {
		l.low[i] = o.behind(f, i)
	}
	if len(o.leases) == maxFollowers {
		o.leases = slices.Delete(o.leases, 0, 1)
	}
	o.leases = append(o.leases, l)
}

// readBy names the call of a reader. When that is over, so is the reading:
// whoever comes back on the same connection may be here before the call has
// noticed that it was cut, and takes its own place all the same.
func (o *output) readBy(ctx context.Context, f *follower) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f.ctx = ctx
}

// next copies what comes next in a stream to buf. done reports that nothing
// follows, in either.
func (o *output) next(f *follower, i int, buf []byte) (at uint64, n int, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &o.rings[i]
	at = max(f.pos[i], r.start)
	n = copy(buf, r.at(at, len(buf)))
	f.pos[i] = at + uint64(n)
	if n > 0 {
		tell(r.room)
	}
	return at, n, o.done && f.pos[stdout] == o.rings[stdout].end && f.pos[stderr] == o.rings[stderr].end
}

// tellAll sends a process's story: its output from f on, and its end.
func (p *process) tellAll(ctx context.Context, f *follower, send func(*pb.OutputResponse) error) error {
	buf := make([]byte, most)
	beat := time.NewTicker(beatTime)
	defer beat.Stop()
	for {
		sent, over := false, false
		for i := range p.out.rings {
			at, n, done := p.out.next(f, i, buf)
			over = done
			if n == 0 {
				continue
			}
			sent = true
			b := &pb.Bytes{At: at, Data: buf[:n]}
			ev := &pb.OutputResponse{Event: &pb.OutputResponse_Stdout{Stdout: b}}
			if i == stderr {
				ev.Event = &pb.OutputResponse_Stderr{Stderr: b}
			}
			if err := send(ev); err != nil {
				return err
			}
		}
		if over {
			<-p.done
			return send(&pb.OutputResponse{Event: &pb.OutputResponse_End{End: p.end}})
		}
		if sent {
			beat.Reset(beatTime)
			continue
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
			if err := send(&pb.OutputResponse{Event: &pb.OutputResponse_Beat{Beat: &pb.Beat{}}}); err != nil {
				return err
			}
		}
	}
}
