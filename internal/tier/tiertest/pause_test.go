package tiertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

// counter is a program that counts in a file, in steps of about 10 ms.
const counter = "i=0; while :; do i=$((i+1)); echo $i > /workspace/n; sleep 0.01; done"

// rate is how much it counts at most in a time that is in two parts.
func rate(d time.Duration) int { return int(d/(10*time.Millisecond)) + 2 }

// goesOn waits until it has counted on.
func goesOn(t *testing.T, g box.Guest, at int) {
	t.Helper()
	if err := comes(func() error {
		if counts(t, g) == at {
			return errors.New("it counts no more")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// startCounter starts a counter and waits until it has begun to count.
func startCounter(t *testing.T, g box.Guest) {
	t.Helper()
	start(t, g, "sh", "-c", counter)
	counts(t, g)
}

// counts reads what it counted. The file is empty for a moment now and then.
func counts(t *testing.T, g box.Guest) (n int) {
	t.Helper()
	if err := comes(func() (err error) {
		n, err = strconv.Atoi(strings.TrimSpace(run(t, g, "cat /workspace/n 2>/dev/null || :")))
		return err
	}); err != nil {
		t.Fatal("nothing counts:", err)
	}
	return n
}

// pauser is a box that can be paused, or the test ends here: what cannot says why.
func pauser(t *testing.T, b box.Lasting) box.Pauser {
	t.Helper()
	p, ok := b.(box.Pauser)
	if !ok {
		t.Fatalf("%T is no Pauser", b)
	}
	if err := p.Pausable(); err != nil {
		if box.KindOf(err) != box.Unsupported || p.Pause(t.Context()) == nil || os.Geteuid() == 0 {
			t.Errorf("it says that it cannot be paused: %v", err)
		}
		t.Skip(err)
	}
	return p
}

func do(t *testing.T, step func(context.Context) error) {
	t.Helper()
	if err := step(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// stands makes sure that no time of a processor goes to a box, but for a little
// of its runtime's, and for what that collects now and then.
func stands(t *testing.T, b box.Lasting) {
	t.Helper()
	if err := comes(func() error {
		began := time.Now()
		before, err := b.Account(t.Context())
		<-time.After(400 * time.Millisecond)
		after, err2 := b.Account(t.Context())
		took := time.Since(began)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if used := after.CPU - before.CPU; used > took/10 {
			return fmt.Errorf("a paused box used %v of a processor in %v", used, took)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestAPausedBoxStandsStillAndGoesOn(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		defer p.destroy(t, b)
		g, s := use(t, b), pauser(t, b)
		startCounter(t, g)
		start(t, g, "sh", "-c", "while :; do :; done")
		for range 5 {
			runs := time.Now()
			at := counts(t, g)
			began := time.Now()
			do(t, s.Pause)
			took, ran := time.Since(began), time.Since(runs)
			do(t, s.Pause) // it stays so
			stands(t, b)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if _, err := g.Stat(ctx, "/workspace", false); err == nil {
				t.Error("its agent answers")
			}
			cancel()
			<-time.After(time.Second)
			began = time.Now()
			do(t, s.Resume)
			t.Logf("paused in %v, resumed in %v", took, time.Since(began))
			do(t, s.Resume)
			now := counts(t, g)
			if ran += time.Since(began); now-at > rate(ran) { // and not the 1.4 s that it stood
				t.Errorf("it counted from %d to %d and ran for %v", at, now, ran)
			}
			goesOn(t, g, now)
		}
	})
}

func TestAPausedBoxOutlivesItsKilledMaker(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		made := p.killedFront(t)
		b := p.recover(t, made.ID, made.State)
		g := guest.New(b.Agent, unhurried)
		startCounter(t, g)
		runs := time.Now()
		at := counts(t, g)
		g.Close()
		if b.(box.Pauser).Pausable() != nil {
			defer p.destroy(t, b)
		}
		do(t, pauser(t, b).Pause)
		ran := time.Since(runs)
		for range 3 { // each front gives it up as it is
			b.Detach()
			b = p.recover(t, made.ID, made.State)
			stands(t, b)
		}
		<-time.After(time.Second)
		runs = time.Now()
		do(t, pauser(t, b).Resume)
		g = use(t, b)
		now := counts(t, g)
		if ran += time.Since(runs); now-at > rate(ran) { // and not the second and more that it stood
			t.Errorf("it counted from %d to %d and ran for %v", at, now, ran)
		}
		if _, err := g.Input(t.Context(), box.ProcessRef{PID: made.PID}, box.Input{Data: []byte("all\n")}); err != nil {
			t.Fatal(err)
		}
		if end, out := ended(t, g, made.PID); end.ExitCode != 42 || out != "before\nafter all\n" {
			t.Errorf("a program from before: %+v, %q", end, out)
		}
		p.destroy(t, b)
	})
}

func TestAPausedBoxCanBeDestroyed(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		b := p.create(t, spec())
		g := use(t, b)
		start(t, g, "sh", "-c", "trap '' TERM INT HUP; "+counter)
		counts(t, g)
		if b.(box.Pauser).Pausable() != nil {
			defer p.destroy(t, b)
		}
		do(t, pauser(t, b).Pause)
		began := time.Now()
		p.destroy(t, b)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("that took %v", took)
		}
		// By whoever does not know it; and as it is taken up with a wrong state.
		for _, how := range []string{"swept", "not recovered"} {
			made := p.killedFront(t)
			b := p.recover(t, made.ID, made.State)
			do(t, pauser(t, b).Pause)
			b.Detach()
			pid := firstOf(t, made.State).PID
			if how == "swept" {
				if gone, err := p.SweepLasting(t.Context(), func(box.ID) bool { return false }); err != nil || len(gone) != 1 {
					t.Errorf("swept %v, %v", gone, err)
				}
			} else if _, err := p.Recover(t.Context(), made.ID, []byte("{}")); box.KindOf(err) != box.NotFound {
				t.Errorf("recovered: %v", err)
			}
			p.gone(t, made.ID, pid)
		}
	})
}

// Pausing, resuming and destroying come in any order, from anywhere.
func TestPausingRacesWithDestroying(t *testing.T) {
	eachTier(t, func(t *testing.T, p *place) {
		for i := range 6 {
			b := p.create(t, spec())
			startCounter(t, use(t, b))
			if b.(box.Pauser).Pausable() != nil {
				defer p.destroy(t, b)
			}
			s := pauser(t, b)
			done := make(chan struct{})
			for range 2 {
				go func() {
					for range 4 {
						_ = s.Pause(context.Background())
						_ = s.Resume(context.Background())
					}
					done <- struct{}{}
				}()
			}
			<-time.After(time.Duration(i) * 7 * time.Millisecond)
			p.destroy(t, b)
			<-done
			<-done
		}
	})
}
