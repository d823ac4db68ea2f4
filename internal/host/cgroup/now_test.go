package cgroup

import "testing"

func TestLimitsAreReadBack(t *testing.T) {
	want := Limits{Memory: 64 << 20, MilliCPU: 1250, Pids: 77}
	for name, m := range map[string]func(*testing.T) *Manager{
		"the host's": realManager,
		"version 2":  func(t *testing.T) *Manager { return newFakeV2(t, allThree).manager("0::/init.scope\n") },
	} {
		t.Run(name, func(t *testing.T) {
			g := realGroup(t, m(t), want)
			if got, err := g.Now(); err != nil || got != want {
				t.Errorf("it says %+v, %v", got, err)
			}
			if err := g.SetCPU(0); err != nil {
				t.Fatal(err)
			}
			if err := g.SetMemory(0); err != nil {
				t.Fatal(err)
			}
			if got, err := g.Now(); err != nil || got != (Limits{Pids: 77}) {
				t.Errorf("without: %+v, %v", got, err)
			}
		})
	}
}
