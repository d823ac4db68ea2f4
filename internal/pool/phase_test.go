package pool

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func TestNothingComesBackFromALease(t *testing.T) {
	reach := map[phase]bool{}
	var walk func(phase)
	walk = func(p phase) {
		for _, next := range changes()[p] {
			if !reach[next] {
				reach[next] = true
				walk(next)
			}
		}
	}
	walk(leased)
	for _, p := range []phase{making, ready, checking, leased} {
		if reach[p] {
			t.Errorf("a leased box can become %s", p)
		}
	}
	if !reach[gone] || len(changes()) != 6 {
		t.Error("a leased box cannot end")
	}
}

func TestOneOfManyWinsAChange(t *testing.T) {
	for range 200 {
		b := newSlot()
		if b.become(making, ready) || b.become(ready, checking) {
			t.Fatal("a change that is not in the table, or not from this phase")
		}
		b.become(making, checking)
		b.become(checking, ready)
		var won atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if b.become(ready, checking) {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d won", won.Load())
		}
	}
}

func TestWhatIsBoundAtTheLeaseIsNotInTheShape(t *testing.T) {
	spec := func(f func(*box.Spec)) box.Spec {
		s := box.Spec{
			ID: "one", Tenant: "t", Image: "base", Workdir: "/work", Lasting: true, Net: box.Net{Mode: box.NetNone},
			Limits: box.Limits{MilliCPU: 1000, Memory: 1 << 28, Disk: 1 << 26, Timeout: time.Second},
		}
		f(&s)
		return s
	}
	first, miss := ShapeOf(box.TierGvisor, spec(func(*box.Spec) {}))
	if miss != "" {
		t.Fatal(miss)
	}
	for what, c := range map[string]struct {
		change func(*box.Spec)
		same   bool
		miss   Miss
	}{
		"id":       {func(s *box.Spec) { s.ID = "two" }, true, ""},
		"tenant":   {func(s *box.Spec) { s.Tenant, s.Principal = "u", "v" }, true, ""},
		"cpu":      {func(s *box.Spec) { s.Limits.MilliCPU = 10 }, true, ""},
		"timeout":  {func(s *box.Spec) { s.Limits.Timeout = 0 }, true, ""},
		"memory":   {func(s *box.Spec) { s.Limits.Memory++ }, false, ""},
		"disk":     {func(s *box.Spec) { s.Limits.Disk++ }, false, ""},
		"files":    {func(s *box.Spec) { s.Limits.Files++ }, false, ""},
		"tasks":    {func(s *box.Spec) { s.Limits.Processes++ }, false, ""},
		"open":     {func(s *box.Spec) { s.Limits.OpenFiles++ }, false, ""},
		"image":    {func(s *box.Spec) { s.Image = "host" }, false, ""},
		"workdir":  {func(s *box.Spec) { s.Workdir = "/w" }, false, ""},
		"hostname": {func(s *box.Spec) { s.Hostname = "h" }, false, ""},
		"hidden":   {func(s *box.Spec) { s.NoMount = []string{"/etc"} }, false, ""},
		"on_limit": {func(s *box.Spec) { s.Limits.OnLimit = box.LimitKill }, false, ""},
		"volumes":  {func(s *box.Spec) { s.Volumes = []box.Volume{{}} }, false, MissVolumes},
		"mounts":   {func(s *box.Spec) { s.Mounts = []box.Mount{{}} }, false, MissMounts},
		"net":      {func(s *box.Spec) { s.Net.Mode = box.NetAllowlist }, false, ""},
		"seeds":    {func(s *box.Spec) { s.Seeds = []box.Seed{{}} }, false, MissSeeds},
		"one shot": {func(s *box.Spec) { s.Lasting = false }, false, MissOneShot},
	} {
		got, miss := ShapeOf(box.TierGvisor, spec(c.change))
		if miss != c.miss || (got == first) != c.same {
			t.Errorf("%s: %+v, miss %q", what, got, miss)
		}
	}
}
