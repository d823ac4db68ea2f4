package box

import "testing"

// The whole table, so that each change of it is a change here.
func TestPhasesChangeOnlyAsTheTableSays(t *testing.T) {
	allowed := map[[2]Phase]bool{
		{PhaseCreated, PhaseRunning}: true, {PhaseCreated, PhaseDestroyed}: true,
		{PhaseRunning, PhasePaused}: true, {PhaseRunning, PhaseDestroyed}: true,
		{PhasePaused, PhaseRunning}: true, {PhasePaused, PhaseDestroyed}: true,
	}
	for _, p := range Phases() {
		for _, q := range Phases() {
			err := p.Become(q)
			if (err == nil) != allowed[[2]Phase{p, q}] {
				t.Errorf("%s to %s: %v", p, q, err)
			}
			if p == PhaseDestroyed && KindOf(err) != NotFound {
				t.Errorf("what is destroyed is not there: %v", err)
			}
		}
	}
	if err := Phase("warm").Become(PhaseRunning); KindOf(err) != Fault {
		t.Errorf("an unknown phase: %v", err)
	}
}
