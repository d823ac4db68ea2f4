package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// shortTier is a tier on a host that is short of something for a while.
type shortTier struct {
	*plainTier
	short   atomic.Bool
	lingers atomic.Bool // whoever sweeps takes all the time that there is for it
}

func (t *shortTier) SweepLasting(ctx context.Context, keep func(box.ID) bool) ([]box.ID, error) {
	if t.lingers.Load() {
		<-ctx.Done()
	}
	return t.plainTier.SweepLasting(ctx, keep)
}

func (t *shortTier) Recover(ctx context.Context, id box.ID, state []byte) (box.Box, error) {
	if t.short.Load() {
		return nil, box.Errorf(box.Unavailable, "recover box", "cannot recover box %s: too many open files", id)
	}
	return t.plainTier.Recover(ctx, id, state)
}

func newShort(t *testing.T) (*bench, *shortTier) {
	short := &shortTier{}
	b := newBench(t, func(c *Config) {
		short.plainTier = newPlainTier()
		c.Engine.Tiers = []box.Tier{short}
	})
	b.tier = short.plainTier
	return b, short
}

func TestAShortageAtAStartLosesNoBox(t *testing.T) {
	b, short := newShort(t)
	i := b.make(box.CreateRequest{})
	short.short.Store(true)
	b.again()
	if _, err := b.Guest(t.Context(), alice(), i.ID, box.ScopeRead); box.KindOf(err) != box.Unavailable {
		t.Errorf("a call to it: %v", err)
	}
	got, err := b.Inspect(t.Context(), alice(), i.ID)
	if err != nil || got.Phase != box.PhaseRunning || got.Detail != absentDetail {
		t.Errorf("it is told as %+v, %v", got, err)
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 1 || b.tier.count() != 1 || b.Stats().Absent != 1 {
		t.Errorf("its share %+v, on the host %d, absent %d", used, b.tier.count(), b.Stats().Absent)
	}
	short.short.Store(false)
	for end := time.Now().Add(longest); b.lookup(i.ID) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is not taken up again")
		}
	}
	if _, err := b.guest(i.ID).Stat(t.Context(), "/x", false); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(longest); b.Stats().Absent != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is looked for still")
		}
	}
	if used, _ := b.conf.Gate.Used("a"); used.Boxes != 1 {
		t.Errorf("its share is taken %d times", used.Boxes)
	}
}

func TestAnEndOfABoxThatCannotBeReachedMayTakeAllOfItsTime(t *testing.T) {
	t.Parallel() // it mostly waits
	b, short := newShort(t)
	i := b.make(box.CreateRequest{})
	short.short.Store(true)
	b.again()
	short.lingers.Store(true)
	if err := b.Destroy(t.Context(), alice(), i.ID); err != nil {
		t.Error(err)
	}
	short.lingers.Store(false)
	if got, err := b.Inspect(t.Context(), alice(), i.ID); err != nil || got.Phase != box.PhaseDestroyed || got.Reason != box.ReasonAsked {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestABoxThatCannotBeReachedEndsWhenItsOwnerSaysSoOrItsTimeIsOver(t *testing.T) {
	b, short := newShort(t)
	asked, ttl := b.make(box.CreateRequest{}), b.make(box.CreateRequest{TTL: 1500 * time.Millisecond})
	short.short.Store(true)
	b.again()
	if err := b.Destroy(t.Context(), alice(), asked.ID); err != nil {
		t.Fatal(err)
	}
	b.becomes(asked.ID, box.ReasonAsked)
	b.becomes(ttl.ID, box.ReasonTTL)
	if n := b.tier.count(); n != 0 {
		t.Errorf("%d boxes are on the host", n)
	}
	for end := time.Now().Add(longest); ; time.Sleep(10 * time.Millisecond) {
		if used, _ := b.conf.Gate.Used("a"); used.Boxes == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("of their share %d are taken", used.Boxes)
		}
	}
}
