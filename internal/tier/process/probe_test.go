package process

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

func TestProbePredictsWhatABoxReports(t *testing.T) {
	tier := newTier(t)
	c := tier.Probe(t.Context())
	if !c.Usable || len(c.Missing) > 0 {
		t.Fatalf("not usable: %q", c.Missing)
	}
	b, err := tier.Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	defer gone(t, tier, b)
	if !slices.Equal(c.Weak, b.Weak()) {
		t.Errorf("predicts %q, a box reports %q", c.Weak, b.Weak())
	}
	for _, s := range c.Steps {
		if s.State == box.Missing || s.State == box.Weak && !strings.HasPrefix(s.Name, "control group: ") {
			t.Errorf("%s: %s: %s", s.Name, s.State, s.Detail)
		}
	}
	for _, dir := range []string{tier.RunDir(), tier.StoreDir()} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 1 {
			t.Errorf("%s holds %v (%v)", dir, left, err)
		}
	}
}

func TestWithoutATierTheRestIsStillTried(t *testing.T) {
	c := ProbeWithout(t.Context(), errors.New("cannot use it: on purpose"))
	if c.Usable || !slices.Equal(c.Missing, []string{"state folder: cannot use it: on purpose"}) {
		t.Errorf("usable %v, missing %q", c.Usable, c.Missing)
	}
	tried := map[string]box.StepState{}
	for _, s := range c.Steps {
		tried[s.Name] = s.State
	}
	for _, name := range []string{"user namespace", "all namespaces at once", "own root", "Landlock", "system-call filter"} {
		if tried[name] != box.Works {
			t.Errorf("%s is %q", name, tried[name])
		}
	}
}

func TestAProbeThatIsGivenUpSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c := newTier(t).Probe(ctx); c.Usable || len(c.Missing) == 0 {
		t.Errorf("usable %v, missing %q", c.Usable, c.Missing)
	}
}
