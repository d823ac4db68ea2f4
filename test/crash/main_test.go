// Package crash kills the daemon, at every moment that has a name (internal/fault)
// and at random ones, under mixed work, and holds what the next one finds against
// what callers were told: nothing on the host that no row knows, no row without
// its box, no name or user twice, every program with its true end, and nothing
// undone that was told as done. Boxes with a network try everything all the time, and
// their gateway is killed, too: what arrives in the world (test/upstream) is what the
// rules allow that were told last. docs/crash-safety.md says which test is for which
// fault.
//
// CI kills at each moment once and 10 times at random; `make crash` (tag crash) at
// each three times or more and 100 times at random. SUNABA_CRASH_SEED repeats a
// run's choices.
package crash

import (
	"os"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
	"github.com/sunaba-dev/sunaba/test/upstream"
)

func TestMain(m *testing.M) {
	os.Exit(upstream.Main(func() int { return harness.MainWith(m, "faultpoints") }))
}
