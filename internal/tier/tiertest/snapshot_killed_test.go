package tiertest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

// inTheMidst begins a snapshot of a box with 150 MB, and returns after some time, with
// whether it is over.
func inTheMidst(b box.Box, g *guest.Guest, kind box.SnapshotKind, after string) (bool, error) {
	ctx := context.Background()
	p, err := g.Start(ctx, box.ProcessSpec{Command: box.Command{Argv: []string{"sh", "-c", "head -c 150000000 /dev/urandom > /workspace/big"}, Env: []string{"PATH=/usr/bin:/bin"}}})
	if err != nil {
		return false, err
	}
	if err := g.Follow(ctx, box.ProcessRef{PID: p.PID}, box.Positions{}, func(box.ProcessEvent) error { return nil }); err != nil {
		return false, err
	}
	if err := g.Park(ctx); err != nil {
		return false, err
	}
	d, err := time.ParseDuration(after)
	if err != nil {
		return false, err
	}
	over := make(chan error, 1)
	go func() {
		_, err := b.(box.Snapshotter).Snapshot(ctx, kind, func(_ string, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		})
		over <- err
	}()
	select {
	case err := <-over:
		return true, err
	case <-time.After(d):
		return false, nil
	}
}

// The guest's kernel writes a copy to its end, whoever asked for it, and goes on.
func TestAGuestGoesOnWhoseCopyNobodyWaitsForAnyMore(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	midst := 0
	for _, kind := range []box.SnapshotKind{box.SnapshotMemory, box.SnapshotFiles} {
		for _, after := range []string{"1ms", "20ms", "80ms"} {
			made := p.killedFront(t, string(kind), after)
			if !made.Done {
				midst++
			}
			b := p.recover(t, made.ID, made.State)
			g := use(t, b)
			began := time.Now()
			// It stands until its copy is written, which may be longer than a call waits.
			if err := later(func() error { _, err := g.Metrics(t.Context()); return err }); err != nil {
				t.Fatal(err)
			}
			run(t, g, "test $(stat -c %s /workspace/big) = 150000000; echo now > /workspace/now")
			t.Logf("%s, killed after %s (over: %v): it answers after %v", kind, after, made.Done, time.Since(began).Round(time.Millisecond))
			leave(t, g)
			wanted := memorySpec()
			wanted.Limits.Disk = 256 << 20
			c := p.restore(t, wanted, p.copyMemory(t, b))
			if out := run(t, use(t, c), "cat /workspace/now"); out != "now\n" {
				t.Errorf("the copy has %q", out)
			}
			p.destroy(t, c)
			g = use(t, b)
			if _, err := g.Input(t.Context(), box.ProcessRef{PID: made.PID}, box.Input{Data: []byte("all\n")}); err != nil {
				t.Fatal(err)
			}
			if end, out := ended(t, g, made.PID); end.ExitCode != 42 || out != "before\nafter all\n" {
				t.Errorf("a program from before: %+v, %q", end, out)
			}
			p.destroy(t, b)
			p.empty(t)
		}
	}
	if midst == 0 {
		t.Error("no front was killed in the midst of a copy: this judges nothing")
	}
}
