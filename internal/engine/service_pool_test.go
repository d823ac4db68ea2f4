package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/pool"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// pooled is what a plainBox is as long as it is nobody's.
type pooled struct {
	binding sync.Mutex
	owner   string
	bound   int
	unbound error // Bind fails with it
	onBind  func() error
	changed atomic.Bool
}

func (b *plainBox) Bind(_ context.Context, s box.Spec) error {
	b.binding.Lock()
	defer b.binding.Unlock()
	b.pooled.bound++
	switch {
	case b.unbound != nil:
		return b.unbound
	case b.onBind != nil:
		return b.onBind()
	case b.owner != "" || s.ID != b.id || s.Tenant == "":
		return errors.New("it cannot be bound so")
	}
	b.owner = s.Tenant
	return nil
}

func (b *plainBox) Fingerprint(context.Context) (string, error) {
	if b.changed.Load() {
		return "another", nil
	}
	return "as it was made", nil
}

func (a *plainAgent) Metrics(context.Context) (box.Metrics, error) {
	if a.mute.Load() {
		return box.Metrics{}, box.Errorf(box.Unavailable, "ask agent", "cannot reach the agent")
	}
	return box.Metrics{}, nil
}

func reuse(n int) box.CreateRequest {
	b, err := json.Marshal(map[string]any{"lifecycle": map[string]any{"reuse": true, "pool_size": n}})
	if err != nil {
		panic(err)
	}
	return box.CreateRequest{Sandbox: b}
}

// warmBench is a service that keeps so many boxes warm, all of them ready.
func warmBench(t *testing.T, n int) *bench {
	b := newBench(t, func(c *Config) {
		c.Warm = n
		c.Gate = tenant.NewGate(tenant.Rules{Starts: 300, Line: 300, Wait: longest})
	})
	first := b.make(reuse(n))
	if first.Start != box.StartCold || first.StartReason == "" {
		t.Errorf("the first box's start is %s (%s)", first.Start, first.StartReason)
	}
	if err := b.Destroy(t.Context(), alice(), first.ID); err != nil {
		t.Fatal(err)
	}
	b.ready(n)
	return b
}

func (b *bench) stat() (s pool.Stat) {
	if all := b.Stats().Warm; len(all) > 0 {
		s = all[0]
	}
	return s
}

func (b *bench) ready(n int) {
	b.t.Helper()
	for end := time.Now().Add(longest); b.stat().Ready != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%d warm boxes are not ready: %+v", n, b.stat())
		}
	}
}

// nobodys are the boxes on the host that no row knows.
func (b *bench) nobodys() (out []*plainBox) {
	b.tier.mu.Lock()
	defer b.tier.mu.Unlock()
	for id, h := range b.tier.boxes {
		if b.lookup(id) == nil {
			out = append(out, h)
		}
	}
	return out
}

func TestAWarmBoxBecomesTheCallersAndIsNeverGivenTwice(t *testing.T) {
	b := warmBench(t, 2)
	seen := map[box.ID]bool{}
	for range 6 {
		b.ready(2)
		i := b.make(reuse(2))
		h := b.host(i.ID)
		if i.Start != box.StartWarm || i.Phase != box.PhaseRunning || h == nil || h.owner != "a" || seen[i.ID] {
			t.Fatalf("%+v on the host %+v", i, h)
		}
		seen[i.ID] = true
		if got, err := b.Inspect(t.Context(), alice(), i.ID); err != nil || got.Start != box.StartWarm {
			t.Errorf("%+v %v", got, err)
		}
		if err := b.Destroy(t.Context(), alice(), i.ID); err != nil || b.host(i.ID) != nil {
			t.Errorf("it is still on the host, %v", err)
		}
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 0 {
		t.Errorf("the tenant has %+v", used)
	}
}

func TestTwoHundredAtOnceGetFiveWarmBoxesOnceEach(t *testing.T) {
	b := warmBench(t, 5)
	var mu sync.Mutex
	starts, ids, reasons := map[box.StartKind]int{}, map[box.ID]bool{}, map[string]int{}
	var all sync.WaitGroup
	begin := time.Now()
	for range 200 {
		all.Go(func() {
			i, err := b.Create(t.Context(), alice(), reuse(5))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || ids[i.ID] {
				t.Errorf("%+v %v", i, err)
			}
			ids[i.ID] = true
			starts[i.Start]++
			reasons[i.StartReason]++
			if (i.Start == box.StartCold) != (i.StartReason != "") {
				t.Errorf("start %s because %q", i.Start, i.StartReason)
			}
		})
	}
	all.Wait()
	t.Logf("%v in %v: %v", starts, time.Since(begin), reasons)
	if starts[box.StartWarm] < 5 || len(ids) != 200 {
		t.Errorf("starts %v of %d boxes", starts, len(ids))
	}
	for id := range ids {
		if h := b.host(id); h == nil || h.pooled.bound > 1 {
			t.Errorf("box %s: %+v", id, h)
		}
	}
}

// Requests that are always at making some box, of whatever shape, keep nobody's warm
// boxes from being made.
func TestWarmBoxesAreMadeWhileRequestsMakeOthers(t *testing.T) {
	b := warmBench(t, 2)
	hang := make(chan struct{})
	var hangs atomic.Int32
	b.tier.create = func(s box.Spec) error {
		if s.Tenant != "" { // somebody's
			hangs.Add(1)
			<-hang
		}
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := b.Create(t.Context(), alice(), box.CreateRequest{}); err != nil {
			t.Error(err)
		}
	})
	for hangs.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 4 { // more than there were
		b.ready(2)
		if i := b.make(reuse(2)); i.Start != box.StartWarm {
			t.Errorf("%s (%s)", i.Start, i.StartReason)
		}
	}
	close(hang)
	all.Wait()
}

func TestABoxThatFailsOnUseOrWasChangedGivesWayToAnother(t *testing.T) {
	for name, spoil := range map[string]func(*plainBox){
		"it cannot be bound": func(h *plainBox) { h.unbound = errors.New("no") },
		"it was changed":     func(h *plainBox) { h.changed.Store(true) },
		"it is silent then":  func(h *plainBox) { h.onBind = func() error { h.mute.Store(true); return nil } },
	} {
		t.Run(name, func(t *testing.T) {
			b := warmBench(t, 2)
			bad := b.nobodys()
			if len(bad) != 2 {
				t.Fatalf("%d boxes are nobody's", len(bad))
			}
			spoil(bad[0])
			for range 2 {
				i := b.make(reuse(2))
				if i.ID == bad[0].id {
					t.Errorf("the bad box was handed out: %+v", i)
				}
			}
			for end := time.Now().Add(longest); b.host(bad[0].id) != nil; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the bad box is still there")
				}
			}
		})
	}
	t.Run("all of them", func(t *testing.T) {
		b := warmBench(t, 3)
		b.tier.mu.Lock()
		for _, h := range b.tier.boxes {
			h.unbound = errors.New("no")
		}
		b.tier.mu.Unlock()
		i := b.make(reuse(3))
		if i.Start != box.StartCold || !strings.Contains(i.StartReason, "no") {
			t.Errorf("start %s because %q", i.Start, i.StartReason)
		}
	})
}

func TestWhoGoesAwayDoesNotPoisonThePool(t *testing.T) {
	b := warmBench(t, 1)
	for range warmTrip + 1 {
		b.ready(1)
		ctx, cancel := context.WithCancel(t.Context())
		h := b.nobodys()[0]
		h.onBind = func() error {
			cancel()
			return box.Errorf(box.Unavailable, "bind box", "cannot bind: the stream was closed")
		}
		if i, err := b.Create(ctx, alice(), reuse(1)); err == nil {
			t.Errorf("made for nobody: %+v", i)
		}
		for end := time.Now().Add(longest); b.host(h.id) != nil; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("its box is still there")
			}
		}
	}
	b.ready(1)
	if st := b.stat(); st.Failed != 0 || st.Poisoned {
		t.Errorf("%+v", st)
	}
	if i := b.make(reuse(1)); i.Start != box.StartWarm {
		t.Errorf("start %s because %q", i.Start, i.StartReason)
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 1 {
		t.Errorf("the tenant has %+v", used)
	}
}

func TestBoxesThatCannotBeMadeAreNotTriedWithoutEnd(t *testing.T) {
	var makes atomic.Int64
	b := newBench(t, func(c *Config) { c.Warm = 3 })
	b.tier.create = func(s box.Spec) error {
		if s.Tenant == "" {
			makes.Add(1)
			return errors.New("cannot make it")
		}
		return nil
	}
	begun := time.Now()
	for range 20 {
		if i := b.make(reuse(3)); i.Start != box.StartCold || i.StartReason == "" {
			t.Errorf("start %s because %q", i.Start, i.StartReason)
		}
	}
	// The first three delays are half a second, a second and two at least; no later one
	// is shorter, however long the host takes for all this.
	if n, took := makes.Load(), time.Since(begun); n > 3+int64(took/(2*time.Second)) {
		t.Errorf("%d attempts for a box in %v", n, took)
	}
}

func TestAKeyMeansOneBoxOfThePoolToo(t *testing.T) {
	b := warmBench(t, 4)
	req := reuse(4)
	req.Key = "k"
	var all sync.WaitGroup
	var mu sync.Mutex
	var ids []box.ID
	for range 10 {
		all.Go(func() {
			i, err := b.Create(t.Context(), alice(), req)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, i.ID)
		})
	}
	all.Wait()
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 1 {
		t.Errorf("boxes %v for one key", ids)
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 1 {
		t.Errorf("the tenant has %+v", used)
	}
}

func TestWarmBoxesDoNotOutliveTheService(t *testing.T) {
	b := warmBench(t, 3)
	mine := b.make(reuse(3))
	b.ready(3)
	b.again()
	if n := b.tier.count(); n != 1 || b.host(mine.ID) == nil {
		t.Errorf("%d boxes are left", n)
	}
	if i, err := b.Inspect(t.Context(), alice(), mine.ID); err != nil || i.Phase != box.PhaseRunning || i.Start != box.StartWarm {
		t.Errorf("%+v %v", i, err)
	}
}

func TestShapesShareWhatMayBeKeptWarm(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Warm = 4 })
	for _, memory := range []string{"64m", "65m", "66m"} {
		b.make(box.CreateRequest{Sandbox: json.RawMessage(`{"resource_limits":{"memory":"` + memory + `"},"lifecycle":{"reuse":true,"pool_size":3}}`)})
	}
	want := 0
	for _, s := range b.Stats().Warm {
		want += s.Want
	}
	if want != 4 {
		t.Errorf("%d boxes are to be kept warm", want)
	}
}
