package daemon

import (
	"context"
	"testing"

	"github.com/sunaba-dev/sunaba/internal/agent/clock"
)

func TestAReaderTakesItsPlaceBeforeItsOldCallHasNoticed(t *testing.T) {
	o := newOutput(minRing, false, clock.New())
	ctx, cancel := context.WithCancel(t.Context())
	old, err := o.follow([2]int64{0, 0})
	if err != nil {
		t.Fatal(err)
	}
	o.readBy(ctx, old)
	cancel()
	if _, err := o.follow([2]int64{0, 0}); err != nil {
		t.Fatal(err)
	}
	if len(o.followers) != 1 || len(o.leases) != 0 {
		t.Errorf("there are %d readers and %d kept places, want 1 and none", len(o.followers), len(o.leases))
	}
	o.leave(old, true)
	if len(o.followers) != 1 || len(o.leases) != 0 {
		t.Errorf("when the old call ends there are %d readers and %d kept places, want 1 and none", len(o.followers), len(o.leases))
	}
}
