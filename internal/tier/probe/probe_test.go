package probe

import (
	"errors"
	"slices"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
)

func TestCapsFollowFromTheSteps(t *testing.T) {
	yes := Step{Needed: true, Step: trial.Works("a", "")}
	feature := Step{Step: trial.Missing("b", errors.New("gone"), "")}
	weak := Step{Needed: true, Step: box.Step{Name: "c", State: box.Weak}, Weak: []string{"w1", "w2"}}
	again := Step{Needed: true, Step: box.Step{Name: "d", State: box.Weak}, Weak: []string{"w2"}}
	no := Step{Needed: true, Step: trial.Missing("e", errors.New("broken"), "")}

	c := (&Probe{Steps: []Step{yes, feature, weak, again}}).Caps()
	if !c.Usable || len(c.Missing) > 0 || !slices.Equal(c.Weak, []string{"w1", "w2"}) || len(c.Steps) != 4 {
		t.Errorf("without a needed step missing: %+v", c)
	}
	c = (&Probe{Steps: []Step{yes, no, NotTried("f", "e")}}).Caps()
	if c.Usable || !slices.Equal(c.Missing, []string{"e: broken"}) {
		t.Errorf("with one: %+v", c)
	}
}
