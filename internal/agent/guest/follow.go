package guest

import (
	"context"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// Follow implements box.Guest. The end is told when the agent has said nothing
// after it.
func (g *Guest) Follow(ctx context.Context, p box.ProcessRef, from box.Positions, fn func(box.ProcessEvent) error) error {
	const op = "follow process"
	if from.Stdout < -1 || from.Stderr < -1 {
		return refused(op, "a position is out of range")
	}
	pid, err := g.resolve(ctx, op, p)
	if err != nil {
		return err
	}
	t := tale{stdout: max(from.Stdout, 0), stderr: max(from.Stderr, 0)}
	last := func(e box.ProcessEvent) bool { return e.Kind == box.EventEnd }
	return resumed(ctx, g, op, fn, func(fn func(box.ProcessEvent) error) error {
		req := &agentpb.OutputRequest{Pid: pid, StdoutFrom: from.Stdout, StderrFrom: from.Stderr}
		if t.stdout > 0 {
			req.StdoutFrom = t.stdout
		}
		if t.stderr > 0 {
			req.StderrFrom = t.stderr
		}
		s, err := hear(ctx, g, op, g.processes.Output, req, func() {})
		if err != nil {
			return err
		}
		defer s.close()
		return passOn(s, t.event, last, fn)
	})
}

// tale is how far a process's story was told: where the next byte of each
// stream may be at the earliest.
type tale struct {
	stdout, stderr int64
	beats          beats
}

func (t *tale) event(m *agentpb.OutputResponse) (box.ProcessEvent, error) {
	switch e := m.Event.(type) {
	case *agentpb.OutputResponse_Stdout:
		at, err := advance(&t.stdout, e.Stdout)
		return box.ProcessEvent{Kind: box.EventStdout, At: at, Data: e.Stdout.GetData()}, err
	case *agentpb.OutputResponse_Stderr:
		at, err := advance(&t.stderr, e.Stderr)
		return box.ProcessEvent{Kind: box.EventStderr, At: at, Data: e.Stderr.GetData()}, err
	case *agentpb.OutputResponse_Beat:
		if !t.beats.ok() {
			return box.ProcessEvent{}, lie("beats without a pause")
		}
		return box.ProcessEvent{Kind: box.EventBeat}, nil
	case *agentpb.OutputResponse_End:
		end, err := end(e.End)
		if err == nil && (end.Stdout < t.stdout || end.Stderr < t.stderr) {
			err = lie("less output in all than was told")
		}
		return box.ProcessEvent{Kind: box.EventEnd, End: end}, err
	}
	return box.ProcessEvent{}, lie("an event that is none")
}

// advance moves a position behind a piece, which may not lie before it.
func advance(next *int64, b *agentpb.Bytes) (int64, error) {
	at, err := count(b.At, "a position")
	switch {
	case err != nil:
		return 0, err
	case len(b.Data) == 0:
		return 0, lie("a piece of nothing")
	case at < *next:
		return 0, lie("a byte twice")
	case at+int64(len(b.Data)) < 0:
		return 0, lie("a position of %d", at)
	}
	*next = at + int64(len(b.Data))
	return at, nil
}
