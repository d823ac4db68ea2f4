package tiertest

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// somebodys is a spec that is somebody's, of a box that was made by another.
func somebodys(s box.Spec) box.Spec {
	s.Tenant, s.Principal = "acme", "key-1"
	return s
}

func binder(t *testing.T, b box.Lasting) box.Binder {
	t.Helper()
	bind, ok := b.(box.Binder)
	if !ok {
		t.Fatalf("%T is no Binder", b)
	}
	return bind
}

func TestABoxOfNobodysBecomesSomebodysOnce(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		made := spec()
		b := p.create(t, made)
		bind := binder(t, b)
		wanted := somebodys(made)
		wanted.Limits.MilliCPU = 1500 // of two processors, like what it was made with
		var bound atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				err := bind.Bind(t.Context(), wanted)
				if err == nil {
					bound.Add(1)
				} else if box.KindOf(err) != box.Conflict {
					t.Errorf("a second time: %v", err)
				}
				_, _ = b.State(), b.Weak()
			})
		}
		all.Wait()
		if n := bound.Load(); n != 1 {
			t.Fatalf("it was bound %d times", n)
		}
		if got := specOf(t, b.State()); got.Tenant != "acme" || got.Principal != "key-1" || got.Limits.MilliCPU != 1500 {
			t.Errorf("its state says %+v", got)
		}
		if g, err := p.groups.Open(string(made.ID)); err == nil {
			if l, err := g.Now(); err != nil || l.MilliCPU != 1500 {
				t.Errorf("its group has %+v, %v", l, err)
			}
		} else if os.Geteuid() == 0 {
			t.Error(err)
		}
		b.Detach()
		b = p.recover(t, made.ID, b.State())
		if err := binder(t, b).Bind(t.Context(), wanted); box.KindOf(err) != box.Conflict {
			t.Errorf("by a later front: %v", err)
		}
		if out := run(t, use(t, b), "echo on"); out != "on\n" {
			t.Errorf("it says %q", out)
		}
		p.destroy(t, b)
	})
}

func TestABoxIsBoundAsItWasMadeOnly(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		made := spec()
		b := p.create(t, made)
		bind := binder(t, b)
		for what, change := range map[string]func(*box.Spec){
			"id":        func(s *box.Spec) { s.ID = box.NewID() },
			"memory":    func(s *box.Spec) { s.Limits.Memory++ },
			"disk":      func(s *box.Spec) { s.Limits.Disk++ },
			"on_limit":  func(s *box.Spec) { s.Limits.OnLimit = box.LimitKill },
			"image":     func(s *box.Spec) { s.Image = box.ImageBase },
			"workdir":   func(s *box.Spec) { s.Workdir = "/elsewhere" },
			"hostname":  func(s *box.Spec) { s.Hostname = "other" },
			"mounts":    func(s *box.Spec) { s.Mounts = []box.Mount{{Source: "/srv", Target: "/srv"}} },
			"no mounts": func(s *box.Spec) { s.NoMount = []string{"/srv"} },
			"seeds":     func(s *box.Spec) { s.Seeds = make([]box.Seed, 1) },
			"one shot":  func(s *box.Spec) { s.Lasting = false },
		} {
			s := somebodys(made)
			change(&s)
			if err := bind.Bind(t.Context(), s); box.KindOf(err) != box.Conflict {
				t.Errorf("another %s: %v", what, err)
			}
		}
		for what, change := range map[string]func(*box.Spec){
			"tenant":    func(s *box.Spec) { s.Tenant = "" },
			"principal": func(s *box.Spec) { s.Principal = "" },
			"cpu":       func(s *box.Spec) { s.Limits.MilliCPU = 0 },
		} {
			s := somebodys(made)
			change(&s)
			if err := bind.Bind(t.Context(), s); err == nil {
				t.Errorf("bound without %s", what)
			}
		}
		more := somebodys(made)
		more.Limits.MilliCPU = 3000
		if p.Name() == box.TierGvisor {
			if err := bind.Bind(t.Context(), more); box.KindOf(err) != box.Unsupported {
				t.Errorf("three processors for two: %v", err)
			}
		}
		same := somebodys(made)
		same.Mounts, same.NoMount = []box.Mount{}, []string{} // none is none
		if err := bind.Bind(t.Context(), same); err != nil {
			t.Error(err)
		}
		p.destroy(t, b)
		if err := bind.Bind(t.Context(), same); err == nil {
			t.Error("what was destroyed was bound")
		}
	})
}

// idle is how long a fingerprint is looked at. It was for a minute, by hand.
const idle = time.Second

func TestAFingerprintTellsWhetherABoxWasUsed(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		defer func() { p.destroy(t, b) }()
		g := use(t, b)
		print := func() string {
			t.Helper()
			if _, err := g.Processes(t.Context()); err != nil { // as a check does
				t.Fatal(err)
			}
			f, err := b.(box.Fingerprinter).Fingerprint(t.Context())
			if err != nil || f == "" {
				t.Fatalf("%q, %v", f, err)
			}
			return f
		}
		fresh := print()
		for end := time.Now().Add(idle); time.Now().Before(end); <-time.After(idle / 6) {
			if now := print(); now != fresh {
				t.Fatalf("of an idle box it was %s and is %s", fresh, now)
			}
		}
		changed := func(what string) {
			t.Helper()
			now := print()
			if now == fresh {
				t.Errorf("it does not tell that %s: %s", what, now)
			}
			fresh = now
		}
		run(t, g, "head -c 5000 /dev/zero > /workspace/file; sync")
		changed("a file was written")
		start(t, g, "sleep", "1000")
		changed("a program runs")
		if p.Name() == box.TierProcess {
			run(t, g, ":")
			changed("a program ran")
			run(t, g, "mkdir /tmp/folder")
			changed("a folder was made")
		}
		if g, err := p.groups.Open(string(b.ID())); err == nil {
			if err := g.SetCPU(1000); err != nil {
				t.Fatal(err)
			}
			changed("its group has another limit")
		}
		// And it is another box's that is made the same.
		other := p.create(t, spec())
		defer p.destroy(t, other)
		one, err := other.(box.Fingerprinter).Fingerprint(t.Context())
		if err != nil || one == fresh {
			t.Errorf("%s of another box: %v", one, err)
		}
	})
}
