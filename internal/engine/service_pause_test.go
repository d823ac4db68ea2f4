package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// standing is how a plainBox is paused, and what goes wrong then.
type standing struct {
	lock        sync.Mutex
	unable      error
	pauseFails  error
	resumeFails error
	within      func() // called in the midst of a step
	steps       []string
}

func (s *standing) set(fn func(*standing)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	fn(s)
}

func (b *plainBox) Pausable() error {
	b.standing.lock.Lock()
	defer b.standing.lock.Unlock()
	return b.unable
}

func (b *plainBox) Pause(context.Context) error {
	return b.step("pause", true, func(s *standing) error { return s.pauseFails })
}

func (b *plainBox) Resume(context.Context) error {
	return b.step("resume", false, func(s *standing) error { return s.resumeFails })
}

func (b *plainBox) step(name string, still bool, fails func(*standing) error) error {
	b.standing.lock.Lock()
	err, within := fails(&b.standing), b.within
	if err == nil && b.still.Load() != still {
		b.steps = append(b.steps, name)
	}
	b.standing.lock.Unlock()
	if within != nil {
		within()
	}
	if err == nil {
		b.still.Store(still)
	}
	return err
}

func (b *bench) phase(id box.ID, want box.Phase) box.Info {
	b.t.Helper()
	for end := time.Now().Add(longest); ; {
		i, err := b.Inspect(b.t.Context(), alice(), id)
		if err != nil {
			b.t.Fatal(err)
		}
		if i.Phase == want {
			if (want == box.PhasePaused) == i.Paused.IsZero() {
				b.t.Errorf("%s since %v", i.Phase, i.Paused)
			}
			return i
		}
		if time.Now().After(end) {
			b.t.Fatalf("after %v box %s is %s, not %s: %+v", longest, id, i.Phase, want, i)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestAPausedBoxGoesOnAtTheNextCallAndItsTimeMoves(t *testing.T) {
	t.Parallel()                                         // it mostly waits
	const idle, ttl = 10 * time.Second, 11 * time.Second // more than it takes to pause it
	b := newBench(t, nil)
	begun := time.Now()
	i := b.make(box.CreateRequest{TTL: ttl, Idle: idle})
	for range 2 { // the second is no error
		p, err := b.Pause(t.Context(), alice(), i.ID)
		if err != nil || p.Phase != box.PhasePaused || p.Paused.IsZero() || !b.host(i.ID).still.Load() {
			t.Fatalf("%v, %+v", err, p)
		}
	}
	const paused = ttl + 2*reapEvery // longer than it may live, and than it may be idle
	<-time.After(paused)
	if p := b.phase(i.ID, box.PhasePaused); p.Ends.Sub(i.Ends) < paused-50*time.Millisecond {
		t.Errorf("it ends at %v, at first %v", p.Ends, i.Ends)
	}
	if _, err := b.guest(i.ID).Stat(t.Context(), "/x", false); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	r := b.phase(i.ID, box.PhaseRunning)
	if moved := r.Ends.Sub(i.Ends); moved < paused-50*time.Millisecond || moved > took {
		t.Errorf("its end moved by %v, and it was paused for %v to %v", moved, paused, took)
	}
	if r, err := b.Resume(t.Context(), alice(), i.ID); err != nil || r.Phase != box.PhaseRunning {
		t.Errorf("%v, %+v", err, r)
	}
	if got := b.phase(i.ID, box.PhaseDestroyed); got.Reason != box.ReasonTTL && got.Reason != box.ReasonIdle {
		t.Errorf("it ended for %q", got.Reason)
	}
}

// Who tidies up after an answer comes too late for a box that its caller paused
// upon it.
func TestTidyingUpResumesNoBox(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	agent := &forgetful{Agent: b.lookup(i.ID).guest}
	b.lookup(i.ID).guest = agent
	g := b.guest(i.ID)
	if _, err := b.Pause(t.Context(), alice(), i.ID); err != nil {
		t.Fatal(err)
	}
	if err := g.(box.Tidier).Tidy(t.Context(), box.ProcessRef{PID: 7}); err != nil || len(agent.forgot) != 0 {
		t.Errorf("%v, it forgot %v", err, agent.forgot)
	}
	b.phase(i.ID, box.PhasePaused)
	if err := g.Forget(t.Context(), box.ProcessRef{PID: 7}); err != nil { // the control: a caller's own call
		t.Error(err)
	}
	b.phase(i.ID, box.PhaseRunning)
	if err := g.(box.Tidier).Tidy(t.Context(), box.ProcessRef{PID: 8}); err != nil || !slices.Equal(agent.forgot, []int{7, 8}) {
		t.Errorf("%v, it forgot %v", err, agent.forgot)
	}
}

// forgetful is an agent that notes what it is told to forget.
type forgetful struct {
	Agent
	forgot []int
}

func (f *forgetful) Forget(_ context.Context, p box.ProcessRef) error {
	f.forgot = append(f.forgot, p.PID)
	return nil
}

func TestABoxIsPausedForNoLongerThanIsAllowed(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxPaused = time.Second })
	i := b.make(box.CreateRequest{})
	if p, err := b.Pause(t.Context(), alice(), i.ID); err != nil || p.Phase != box.PhasePaused {
		t.Fatalf("%v, %+v", err, p)
	}
	got := b.phase(i.ID, box.PhaseDestroyed)
	if got.Reason != box.ReasonTTL || !strings.Contains(got.Detail, "--max-paused") {
		t.Errorf("it ended for %q: %q", got.Reason, got.Detail)
	}
	if stood := got.Destroyed.Sub(i.Created); stood < time.Second {
		t.Errorf("after %v", stood)
	}
}

func TestAnAgentIsToldOfAPauseBeforeAndAfterIt(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	h := b.host(i.ID)
	if _, err := b.Pause(t.Context(), alice(), i.ID); err != nil || h.told.Load() != 1 || len(h.renewals) != 0 {
		t.Errorf("at the pause: told %d times, %+v (%v)", h.told.Load(), h.renewals, err)
	}
	if _, err := b.Resume(t.Context(), alice(), i.ID); err != nil || h.told.Load() != 1 || len(h.renewals) != 1 || h.renewals[0].Copy {
		t.Errorf("when it went on: told %d times, %+v (%v)", h.told.Load(), h.renewals, err)
	}
	h.set(func(s *standing) { s.pauseFails = errors.New("it does not stand still") })
	if _, err := b.Pause(t.Context(), alice(), i.ID); err == nil || h.told.Load() != 2 || len(h.renewals) != 2 {
		t.Errorf("at a pause that failed: told %d times, %+v (%v)", h.told.Load(), h.renewals, err)
	}
}

func TestProlongingAPausedBoxCountsFromNow(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{TTL: 5 * time.Minute})
	if _, err := b.Pause(t.Context(), alice(), i.ID); err != nil {
		t.Fatal(err)
	}
	<-time.After(100 * time.Millisecond)
	prolonged := time.Now()
	inAnHour := func(ends time.Time) bool { // as the clock is written down: to the millisecond
		return !ends.Before(prolonged.Add(time.Hour-2*time.Millisecond)) && !ends.After(time.Now().Add(time.Hour+2*time.Millisecond))
	}
	for _, d := range []time.Duration{time.Hour, time.Second} { // the second shortens nothing
		p, err := b.Prolong(t.Context(), alice(), i.ID, d)
		if err != nil || !inAnHour(p.Ends) {
			t.Errorf("%v: it ends at %v, prolonged at %v", err, p.Ends, prolonged)
		}
	}
	r, err := b.Resume(t.Context(), alice(), i.ID)
	if err != nil || !inAnHour(r.Ends) {
		t.Errorf("%v: it ends at %v, prolonged at %v", err, r.Ends, prolonged)
	}
}

func TestAnIdleBoxIsPausedIfThatWasAskedFor(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{Idle: 200 * time.Millisecond, OnIdle: box.IdlePause})
	h := b.host(i.ID)
	hang := make(chan struct{})
	done := b.statHangs(i.ID, hang)
	<-time.After(2 * reapEvery)
	if h.still.Load() {
		t.Fatal("one in use was paused")
	}
	close(hang)
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 2 {
		b.phase(i.ID, box.PhasePaused)
		if _, err := b.guest(i.ID).Stat(t.Context(), "/x", false); err != nil {
			t.Error(err)
		}
	}
	if i := b.phase(i.ID, box.PhasePaused); i.OnIdle != box.IdlePause {
		t.Errorf("%+v", i)
	}
	if err := b.Destroy(t.Context(), alice(), i.ID); err != nil {
		t.Error(err)
	}
	b.becomes(i.ID, box.ReasonAsked)
}

func TestWhatCannotBePausedSaysSo(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	why := box.Errorf(box.Unsupported, "pause box", "no freezer")
	b.host(i.ID).set(func(s *standing) { s.unable = why })
	if _, err := b.Pause(t.Context(), alice(), i.ID); box.KindOf(err) != box.Unsupported || !strings.Contains(err.Error(), "no freezer") {
		t.Error(err)
	}
	b.phase(i.ID, box.PhaseRunning)
	for _, bad := range []box.CreateRequest{{OnIdle: "sleep", Idle: time.Hour}, {OnIdle: box.IdlePause}} {
		if _, err := b.Create(t.Context(), alice(), bad); box.KindOf(err) != box.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	b.tier.unable = why
	if _, err := b.Create(t.Context(), alice(), box.CreateRequest{OnIdle: box.IdlePause, Idle: time.Hour}); box.KindOf(err) != box.Unsupported {
		t.Error(err)
	}
	if b.tier.count() != 1 {
		t.Errorf("%d boxes are on the host", b.tier.count())
	}
}

func TestAStepThatFailsLeavesTheBoxAsItWas(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{TTL: time.Hour})
	h := b.host(i.ID)
	h.set(func(s *standing) { s.pauseFails = errors.New("does not stand") })
	if _, err := b.Pause(t.Context(), alice(), i.ID); err == nil || !strings.Contains(err.Error(), "does not stand") {
		t.Error(err)
	}
	if r := b.phase(i.ID, box.PhaseRunning); !r.Ends.Equal(i.Ends) {
		t.Errorf("ends %v, was %v", r.Ends, i.Ends)
	}
	if _, err := b.guest(i.ID).Stat(t.Context(), "/x", false); err != nil {
		t.Error(err)
	}
	h.set(func(s *standing) { s.pauseFails, s.resumeFails = nil, errors.New("does not go on") })
	p, err := b.Pause(t.Context(), alice(), i.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.guest(i.ID).Stat(t.Context(), "/x", false); err == nil || !strings.Contains(err.Error(), "does not go on") {
		t.Error(err)
	}
	if q := b.phase(i.ID, box.PhasePaused); !q.Paused.Equal(p.Paused) {
		t.Errorf("paused since %v, was %v", q.Paused, p.Paused)
	}
	h.set(func(s *standing) { s.resumeFails = nil })
	if _, err := b.guest(i.ID).Stat(t.Context(), "/x", false); err != nil {
		t.Error(err)
	}
}

// A call is either before a pause or resumes the box: it never meets one that
// stands.
func TestCallsAndPausesInAnyOrder(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{TTL: time.Hour})
	h := b.host(i.ID)
	h.set(func(s *standing) { s.within = func() { <-time.After(time.Millisecond) } })
	h.slow = 2 * time.Millisecond
	l := b.lookup(i.ID)
	var wg sync.WaitGroup
	enough := func() (yes bool) {
		h.set(func(s *standing) { yes = len(s.steps) >= 40 })
		return yes || t.Failed()
	}
	for range 2 {
		wg.Go(func() {
			for !enough() {
				if _, err := b.guest(i.ID).Stat(t.Context(), "/x", false); err != nil {
					t.Error(err)
					return
				}
				<-time.After(3 * time.Millisecond)
			}
		})
		wg.Go(func() {
			for !enough() {
				if _, err := b.Service.pause(t.Context(), l, true); err != nil {
					t.Error(err)
				}
				<-time.After(time.Millisecond)
			}
		})
	}
	wg.Wait()
	h.set(func(s *standing) {
		for n, step := range s.steps {
			if want := []string{"pause", "resume"}[n%2]; step != want {
				t.Fatalf("step %d is %s", n, step)
			}
		}
	})
}

func TestALaterServiceBringsABoxToThePhaseOfItsRow(t *testing.T) {
	b := newBench(t, nil)
	kept, halfPaused, halfResumed, stubborn := b.make(box.CreateRequest{}), b.make(box.CreateRequest{}), b.make(box.CreateRequest{}), b.make(box.CreateRequest{})
	since := map[box.ID]time.Time{}
	for _, id := range []box.ID{kept.ID, halfPaused.ID, stubborn.ID} {
		p, err := b.Pause(t.Context(), alice(), id)
		if err != nil {
			t.Fatal(err)
		}
		since[id] = p.Paused
	}
	b.host(halfPaused.ID).still.Store(false) // the daemon ended before it stood
	b.host(halfResumed.ID).still.Store(true) // and before it went on
	b.host(stubborn.ID).still.Store(false)
	b.host(stubborn.ID).set(func(s *standing) { s.pauseFails = errors.New("does not stand") })
	b.again()
	for _, id := range []box.ID{kept.ID, halfPaused.ID} {
		if p := b.phase(id, box.PhasePaused); !p.Paused.Equal(since[id]) || !b.host(id).still.Load() {
			t.Errorf("%+v", p)
		}
	}
	b.phase(halfResumed.ID, box.PhaseRunning)
	b.phase(stubborn.ID, box.PhaseRunning)
	for _, i := range []box.Info{kept, halfPaused, halfResumed, stubborn} {
		if _, err := b.guest(i.ID).Stat(t.Context(), "/x", false); err != nil {
			t.Error(err)
		}
		if b.phase(i.ID, box.PhaseRunning); b.host(i.ID).still.Load() {
			t.Error("it stands")
		}
	}
}

func TestPausingTakesTheRightOfItsOwner(t *testing.T) {
	b := newBench(t, nil)
	i := b.make(box.CreateRequest{})
	reader := box.Caller{Tenant: "a", Principal: "r", Scopes: []box.Scope{box.ScopeRead, box.ScopeExec}}
	eve := box.Caller{Tenant: "b", Principal: "eve", Scopes: box.Scopes()}
	for _, do := range []func(context.Context, box.Caller, box.ID) (box.Info, error){b.Pause, b.Resume} {
		if _, err := do(t.Context(), reader, i.ID); box.KindOf(err) != box.Denied {
			t.Error(err)
		}
		is, isNot := func() error { _, err := do(t.Context(), eve, i.ID); return err }(), func() error { _, err := do(t.Context(), eve, box.NewID()); return err }()
		if box.KindOf(is) != box.NotFound || len(is.Error()) != len(isNot.Error()) {
			t.Errorf("%v, and %v", is, isNot)
		}
	}
	if err := b.Destroy(t.Context(), alice(), i.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Pause(t.Context(), alice(), i.ID); box.KindOf(err) != box.NotFound {
		t.Error(err)
	}
}
