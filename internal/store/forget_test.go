package store

import (
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

func TestOfDestroyedBoxesTheLastAreRemembered(t *testing.T) {
	s := open(t, t.TempDir())
	begun := time.UnixMilli(1e12).UTC()
	at := func(tenant string, n int, phase box.Phase) box.Record {
		r := record(tenant)
		r.Created, r.Phase = begun.Add(time.Duration(n)*time.Millisecond), phase
		if phase == box.PhaseDestroyed {
			r.Reason, r.Destroyed = box.ReasonAsked, r.Created
		}
		return r
	}
	living, other := add(t, s, at("a", 0, box.PhaseCreated)), add(t, s, at("b", 0, box.PhaseDestroyed))
	first := at("a", 1, box.PhaseDestroyed)
	if _, _, err := s.Claim(t.Context(), "a", "k", []byte("r"), first.ID); err != nil {
		t.Fatal(err)
	}
	add(t, s, first)
	for n := range keptDestroyed {
		add(t, s, at("a", 2+n, box.PhaseDestroyed))
	}
	for _, kept := range []box.Record{living, other} {
		if _, err := s.Box(t.Context(), kept.Tenant, kept.ID); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Box(t.Context(), "a", first.ID); box.KindOf(err) != box.NotFound {
		t.Errorf("the oldest is there still: %v", err)
	}
	if all, err := s.List(t.Context(), "a", true, Place{}, 2*keptDestroyed); err != nil || len(all) != keptDestroyed+1 {
		t.Errorf("%d are kept, %v", len(all), err)
	}
	if _, first, err := s.Claim(t.Context(), "a", "k", []byte("r"), box.NewID()); err != nil || !first {
		t.Errorf("its key leads nowhere: %v", err)
	}
}
