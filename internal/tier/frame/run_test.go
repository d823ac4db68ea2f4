package frame

import (
	"context"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
)

// newRun is a run in a box whose runner never answers.
func newRun(t *testing.T, onLimit box.OnLimit) *run {
	t.Helper()
	link, theirs, err := host.LinkPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close(); theirs.Close() })
	b := &Box{Conn: wire.NewConn(link), Spec: box.Spec{Limits: box.Limits{OnLimit: onLimit}}, adapt: tells{}}
	return &run{b: b, limit: make(chan box.LimitHit, 8)}
}

// tells is an adapter of a tier whose first process tells of limits by itself.
type tells struct{ Adapter }

func (tells) Touched(cgroup.Stats) []box.LimitHit { return nil }
func (tells) Full() bool                          { return false }

// Whatever the scheduler does, things that happened at one moment are told the
// same way.
func TestWhatHappensAtOneMomentIsToldTheSameWay(t *testing.T) {
	deadline := &box.Stop{Cause: box.Deadline, Limit: "timeout_sec", Source: "clock"}
	for _, c := range []struct {
		name    string
		onLimit box.OnLimit
		limits  []string
		stop    *box.Stop
		cause   box.Cause
		ended   string
	}{
		{"the program's own end", box.LimitRecord, nil, nil, box.Exited, ""},
		{"its end and a limit that is recorded", box.LimitRecord, []string{"disk"}, nil, box.Exited, ""},
		{"its end and a limit that kills", box.LimitKill, []string{"disk"}, nil, box.DiskLimit, "disk"},
		{"its end and the deadline", box.LimitRecord, nil, deadline, box.Exited, ""},
		{"its end and two limits that kill", box.LimitKill, []string{"max_open_files", "max_processes"}, nil, box.ProcLimit, "max_open_files"},
	} {
		for range 100 {
			r := newRun(t, c.onLimit)
			for _, k := range c.limits {
				r.onLimit(wire.Limit{Name: k, Source: "guest kernel"})
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			if c.stop != nil {
				cancel(c.stop)
			}
			waited := make(chan error, 1)
			waited <- nil
			res := r.await(ctx, 7, waited, &wire.Waited{})
			cancel(nil)
			ended := ""
			for _, h := range r.hits() {
				if h.Ended {
					ended += h.Limit
				}
			}
			if res.Cause != c.cause || ended != c.ended || len(r.hits()) != len(c.limits) {
				t.Fatalf("%s: %s, ended by %q, limits %v", c.name, res.Cause, ended, r.hits())
			}
		}
	}
}

func TestWordsOutsideTheProtocolAreNoLimits(t *testing.T) {
	r := newRun(t, box.LimitKill)
	for _, k := range []string{"", "x", "p", "Memory", "cpu"} {
		r.onLimit(wire.Limit{Name: k, Source: "guest kernel"})
	}
	if len(r.hits()) != 0 || len(r.limit) != 0 {
		t.Errorf("got %v", r.hits())
	}
}
