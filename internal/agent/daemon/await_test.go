package daemon

import (
	"testing"
	"time"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// What a program writes between its start and the moment when somebody begins
// to read is not lost, unless it was said that nobody would.
func TestAProgramWaitsForItsFirstReaderUnlessDetached(t *testing.T) {
	const script = "head -c 3000000 /dev/zero; echo end >&2"
	r := begin(t, harness.Users()[0])
	awaiting := r.sh(script)
	detached := r.sh(script, func(m *pb.StartRequest) { m.Detached = true })
	time.Sleep(300 * time.Millisecond) // time enough to write all of it
	if got := r.follow(t, awaiting); got.gap || len(got.out) != 3000000 || string(got.err) != "end\n" {
		t.Errorf("%d bytes, %q, gap %v", len(got.out), got.err, got.gap)
	}
	if got := r.follow(t, detached); !got.gap || len(got.out) >= 3000000 || len(got.out) < minRing/2 || got.end.StdoutBytes != 3000000 {
		t.Errorf("detached: %d bytes of %d, gap %v", len(got.out), got.end.StdoutBytes, got.gap)
	}
}
