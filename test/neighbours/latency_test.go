//go:build bench

package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// latency is what the neighbour measures of itself: how long each of many small
// pieces of work takes, in microseconds, a line each.
const latency = `
import hashlib, os, time
for i in range(1000):
    begun = time.monotonic_ns()
    with open("f", "wb") as f: f.write(bytes(4096))
    with open("f", "rb") as f: hashlib.sha256(f.read() * 16).digest()
    if i % 20 == 0: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    print((time.monotonic_ns() - begun) // 1000)
    time.sleep(0.001)`

// rounds is how often the neighbour runs alone and beside the nuisances, in turns.
const rounds = 5

// measured is one line of output for each tier.
type measured struct {
	Tier             box.TierName `json:"tier"`
	Rounds           int          `json:"rounds"`
	Operations       int          `json:"operations_per_round"`
	P50WithoutMicros []int64      `json:"p50_without_us"` // by round
	P50WithMicros    []int64      `json:"p50_with_us"`
	P99WithoutMicros []int64      `json:"p99_without_us"`
	P99WithMicros    []int64      `json:"p99_with_us"`
	// MedianRatio is the median of the rounds' ratios of the two p99.
	MedianRatio float64 `json:"p99_ratio_median"`
}

// TestLatency prints the neighbour's p99 with and without, as JSON. It judges
// nothing.
func TestLatency(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's boxes have no control groups here")
	}
	for _, tier := range tiers() {
		m := measured{Tier: tier, Rounds: rounds}
		var ratios []float64
		for range rounds {
			p50, p99, n := neighbour(t, tier)
			_, stop := plague(t, tier, "0.5")
			p50With, p99With, _ := neighbour(t, tier)
			stop()
			m.Operations = n
			m.P50WithoutMicros, m.P99WithoutMicros = append(m.P50WithoutMicros, p50), append(m.P99WithoutMicros, p99)
			m.P50WithMicros, m.P99WithMicros = append(m.P50WithMicros, p50With), append(m.P99WithMicros, p99With)
			ratios = append(ratios, float64(p99With)/float64(p99))
		}
		slices.Sort(ratios)
		m.MedianRatio = ratios[len(ratios)/2]
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(b))
	}
}

// neighbour runs the work once.
func neighbour(t *testing.T, tier box.TierName) (p50, p99 int64, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	rep := report(t, harness.Command(ctx, t, harness.Root, append(on(tier), "-o", "json", "--timeout", "150", "--lang", "python", "-e", latency)...))
	if rep.Cause != box.Exited || *rep.ExitCode != 0 {
		t.Fatalf("the neighbour's work ended by %s: %s", rep.Cause, rep.StderrClean)
	}
	var all []int64
	for line := range strings.Lines(*rep.Stdout) {
		var us int64
		if _, err := fmt.Sscan(line, &us); err != nil {
			t.Fatalf("cannot read %q: %v", line, err)
		}
		all = append(all, us)
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100], len(all)
}
