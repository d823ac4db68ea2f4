package daemon

import (
	"testing"
	"time"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/clock"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// What a program writes between its start and the moment when somebody begins
// to read is not lost, unless it was said that nobody would.
func TestAProgramWaitsForItsFirstReaderUnlessDetached(t *testing.T) {
	const script = "head -c 3000000 /dev/zero; echo end >&2"
	r := begin(t, harness.Users()[0])
	awaiting := r.sh(script)
	detached := r.sh(script, func(m *pb.StartRequest) { m.Detached = true })
	r.waitEnd(t, detached)
	time.Sleep(300 * time.Millisecond) // time enough to write all of it, if nothing held it up
	if got := r.follow(t, awaiting); got.gap || len(got.out) != 3000000 || string(got.err) != "end\n" {
		t.Errorf("%d bytes, %q, gap %v", len(got.out), got.err, got.gap)
	}
	if got := r.follow(t, detached); !got.gap || len(got.out) >= 3000000 || len(got.out) < minRing/2 || got.end.StdoutBytes != 3000000 {
		t.Errorf("detached: %d bytes of %d, gap %v", len(got.out), got.end.StdoutBytes, got.gap)
	}
}

// A connection's buffers may hold more than the place that is kept for a reader
// who was cut off says: it goes on further back, and its place is still its own.
// Else what it left behind would hold the program up until the place's time is over.
func TestAReaderWhoComesBackFurtherBackTakesItsPlace(t *testing.T) {
	o := newOutput(maxRing, false, clock.New())
	o.rings[stdout].append(make([]byte, 2<<20), false)
	begin := func(at int64) *follower {
		f, err := o.follow([2]int64{at, 0})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	one, other := begin(0), begin(0)
	one.pos[stdout], other.pos[stdout] = 2<<20, 1<<20
	o.rings[stdout].size = minRing // the places are narrow
	o.leave(one, true)
	o.leave(other, true)
	begin(2<<20 - 900<<10)
	if len(o.leases) != 1 || o.leases[0].high[stdout] != 1<<20 {
		t.Errorf("left: %+v", o.leases)
	}
	begin(100 << 10)
	if len(o.leases) != 0 {
		t.Errorf("left: %+v", o.leases)
	}
}

// The same, if the end of the one that was cut is noticed only after its return.
func TestAReaderWhoIsBackBeforeItsEndIsNoticedLeavesNoPlace(t *testing.T) {
	o := newOutput(maxRing, false, clock.New())
	o.rings[stdout].append(make([]byte, 2<<20), false)
	begin := func(at int64) *follower {
		f, err := o.follow([2]int64{at, 0})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	one, other := begin(0), begin(0)
	one.pos[stdout], other.pos[stdout] = 2<<20, 1<<20
	again := begin(900 << 10)
	o.leave(one, true)
	if len(o.leases) != 0 || !again.took {
		t.Errorf("left: %+v", o.leases)
	}
	o.leave(other, true) // nobody has come back for this one
	if len(o.leases) != 1 {
		t.Errorf("left: %+v", o.leases)
	}
}
