package policy

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"pgregory.net/rapid"
)

func drawTier(t *rapid.T, label string) box.TierName {
	return rapid.SampledFrom(append(box.TierNames(), "")).Draw(t, label)
}

func drawHost(t *rapid.T) Host {
	h := Host{Usable: map[box.TierName]box.Caps{}}
	for _, tier := range rapid.Permutation(all()).Draw(t, "order") {
		if rapid.Bool().Draw(t, "built "+string(tier)) {
			h.Built = append(h.Built, tier)
		}
		caps := box.Caps{Usable: rapid.Bool().Draw(t, "usable "+string(tier))}
		if rapid.Bool().Draw(t, "weak "+string(tier)) {
			caps.Weak = []string{"something"}
		}
		h.Usable[tier] = caps
	}
	return h
}

// The order of the ladder is written out here a second time on purpose.
func strength(t box.TierName) int {
	return map[box.TierName]int{"process": 1, "container": 2, "docker": 2, "gvisor": 3, "firecracker": 4, "microvm": 4}[t]
}

func TestNoDecisionIsWeakerThanAFloor(t *testing.T) {
	decided := 0
	rapid.Check(t, func(t *rapid.T) {
		req := Request{
			Runtime: drawTier(t, "runtime"), TierFlag: drawTier(t, "flag"),
			MinTier: drawTier(t, "tenant"), LabelMinTier: drawTier(t, "label"),
			Trust:       rapid.SampledFrom(box.Trusts()).Draw(t, "trust"),
			AllowWeaker: rapid.Bool().Draw(t, "allow weaker"), MustNotBeWeak: rapid.Bool().Draw(t, "must not be weak"),
			Spec: goodSpec(),
		}
		host := drawHost(t)
		d, err := Decide(req, host)
		again, err2 := Decide(req, host)
		if !reflect.DeepEqual(d, again) || !reflect.DeepEqual(err, err2) {
			t.Fatalf("two answers: %+v %v and %+v %v", d, err, again, err2)
		}
		shuffled := host
		shuffled.Built = slices.Clone(host.Built)
		slices.Reverse(shuffled.Built)
		if d3, err3 := Decide(req, shuffled); d3.Tier != d.Tier || (err3 == nil) != (err == nil) {
			t.Fatalf("the order of the built tiers matters: %+v %v and %+v %v", d, err, d3, err3)
		}
		if err != nil {
			if d.Tier != "" || box.KindOf(err) == box.Fault {
				t.Fatalf("an error with a tier, or without a kind: %+v %v", d, err)
			}
			return
		}
		decided++
		caps := host.Usable[d.Tier]
		if !slices.Contains(host.Built, d.Tier) || !caps.Usable || req.MustNotBeWeak && len(caps.Weak) > 0 || d.Reason == "" {
			t.Fatalf("chose %+v of %+v", d, host)
		}
		wanted := req.Runtime
		if req.TierFlag != "" {
			wanted = req.TierFlag
		}
		explicit := wanted != "" && wanted != box.TierAuto
		if explicit && d.Tier != wanted {
			t.Fatalf("asked for %s, got %s", wanted, d.Tier)
		}
		if d.Tier == box.TierWasm && !explicit {
			t.Fatal("wasm without being asked for")
		}
		for _, m := range []box.TierName{req.MinTier, req.LabelMinTier} {
			if d.Tier != box.TierWasm && strength(d.Tier) < strength(m) || d.Tier == box.TierWasm && strength(m) > 1 {
				t.Fatalf("%s is weaker than the minimum %s", d.Tier, m)
			}
		}
		strict := req.Trust == box.Hostile || req.Trust == box.Untrusted
		allowed := req.AllowWeaker && explicit && req.Trust != box.Hostile
		if strict && !allowed && strength(d.Tier) < strength(box.TierGvisor) {
			t.Fatalf("%s for %s code", d.Tier, req.Trust)
		}
	})
	if decided == 0 {
		t.Error("no case was decided: the property was never put to the test")
	}
}
