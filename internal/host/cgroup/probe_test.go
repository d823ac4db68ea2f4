package cgroup

import (
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestProbeTriesEachStepAndLeavesNothing(t *testing.T) {
	m := realManager(t)
	steps := m.Probe(t.Context())
	if len(steps) != 7 {
		t.Errorf("got %d steps, want 7", len(steps))
	}
	for _, s := range steps {
		t.Logf("%-20s %-8s %s", s.Name, s.State, s.Detail)
		if s.State != box.Works {
			t.Errorf("%s: %s: %s", s.Name, s.State, s.Detail)
		}
	}
	for _, name := range list(t, m) {
		if len(name) > 6 && name[:6] == "probe-" {
			t.Logf("left or of another process: %s", name)
		}
	}
}
