package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// choice is a tier before the host has had its say.
type choice struct {
	tier   box.TierName
	reason string
	floor  floor // the highest bound that tier had to meet
}

// choose picks the tier from the explicit wish or from the floors.
func choose(req Request, host Host) (choice, error) {
	fs := floors(req)
	if want, by := explicit(req); want != "" {
		return chooseExplicit(req, host, want, by, fs)
	}
	top := strongest(fs)
	tier, ok := nearest(host.Built, top.tier)
	if !ok {
		return choice{}, box.Errorf(box.Unsupported, op, "cannot choose a tier: %s; neither that nor anything as strong is in this build (built: %s)",
			top.says(), list(host.Built)).WithHint("%s", lowerHint([]floor{top}))
	}
	reason := top.says()
	if tier != top.tier {
		reason += fmt.Sprintf("; %s is not in this build, so the next one that is no weaker: %s", top.tier, tier)
	}
	return choice{tier, reason, top}, nil
}

// explicit returns the tier that was asked for by name, and by whom.
func explicit(req Request) (tier box.TierName, by string) {
	if req.TierFlag != "" && req.TierFlag != box.TierAuto {
		return req.TierFlag, "--tier"
	}
	// --tier auto undoes a runtime in the file: the floors decide again.
	if req.TierFlag == "" && req.Runtime != "" && req.Runtime != box.TierAuto {
		return req.Runtime, "runtime"
	}
	return "", ""
}

func chooseExplicit(req Request, host Host, want box.TierName, by string, fs []floor) (choice, error) {
	broken, waived := unmet(req, want, fs)
	built := slices.Contains(host.Built, want)
	use := useHint(host, strongest(fs).tier)
	switch {
	case !built && len(broken) > 0:
		return choice{}, box.Errorf(box.Unsupported, op, "cannot use tier %s: not in this build (built: %s); besides, %s",
			want, list(host.Built), demands(broken)).WithHint("%s; even a build that has %s would refuse it; %s", use, want, lowerHint(broken))
	case !built:
		return choice{}, box.Errorf(box.Unsupported, op, "cannot use tier %s: not in this build (built: %s)",
			want, list(host.Built)).WithHint("%s", use)
	case len(broken) > 0:
		return choice{}, box.Errorf(box.Denied, op, "cannot use tier %s: %s",
			want, demands(broken)).WithHint("%s; %s", use, lowerHint(broken))
	}
	reason := fmt.Sprintf("asked for by %s", by)
	if waived {
		reason += fmt.Sprintf("; weaker than trust %s needs (%s), which was explicitly allowed", req.Trust, TrustFloor(req.Trust))
	} else if top := strongest(fs); Stronger(want, top.tier) {
		reason += "; stronger than needed: " + top.says()
	} else {
		reason += "; " + top.says()
	}
	return choice{want, reason, strongest(fs)}, nil
}

// unmet returns the floors that want breaks, those lifted by AllowWeaker left
// out, and whether any was lifted.
func unmet(req Request, want box.TierName, fs []floor) (broken []floor, waived bool) {
	for _, f := range fs {
		switch {
		case Meets(want, f.tier):
		case f.trust && req.AllowWeaker && req.Trust != box.Hostile:
			waived = true
		default:
			broken = append(broken, f)
		}
	}
	return broken, waived
}

// useHint names a tier of this build that would be accepted.
func useHint(host Host, min box.TierName) string {
	t, ok := nearest(host.Built, min)
	if !ok {
		return fmt.Sprintf("no tier of this build is as strong as %s", min)
	}
	return fmt.Sprintf("use tier %s, or auto", t)
}

// demands joins the bounds that a wish breaks.
func demands(broken []floor) string {
	var words []string
	for _, f := range broken {
		words = append(words, f.says())
	}
	return strings.Join(words, ", and ")
}

// lowerHint says who could permit weaker walls, and how.
func lowerHint(broken []floor) string {
	for _, f := range broken {
		if !f.trust {
			return f.who + " can be lowered only by whoever set it: no trust level or flag overrides it"
		}
	}
	return "if you do trust this code, say so: trust: internal (or --trust internal)"
}

// checkHost refuses a tier that this host cannot run, or not well enough.
func checkHost(req Request, host Host, c choice) error {
	caps := host.Usable[c.tier]
	if !caps.Usable {
		missing := strings.Join(caps.Missing, "; ")
		if missing == "" {
			missing = "it was not probed"
		}
		return box.Errorf(box.Unusable, op, "cannot use tier %s on this host: %s", c.tier, missing).WithHint("%s", insteadHint(host, c))
	}
	if req.MustNotBeWeak && len(caps.Weak) > 0 {
		return box.Errorf(box.Denied, op, "cannot use tier %s: policy demands that nothing is weak, and this host cannot enforce: %s",
			c.tier, strings.Join(caps.Weak, "; ")).WithHint("run sunaba doctor: it says what each weak line needs")
	}
	return nil
}

// insteadHint names the nearest usable tier: no weaker than the chosen one if
// there is such, else one that is weaker and says so but meets every floor.
func insteadHint(host Host, c choice) string {
	var usable []box.TierName
	for _, t := range host.Built {
		if host.Usable[t].Usable {
			usable = append(usable, t)
		}
	}
	const doctor = "run sunaba doctor: it says what is missing and what to do"
	if c.tier == box.TierWasm {
		return doctor // nothing else runs modules
	}
	if t, ok := nearest(usable, c.tier); ok {
		return fmt.Sprintf("usable here and no weaker: --tier %s; or %s", t, doctor)
	}
	if t, ok := nearest(usable, c.floor.tier); ok {
		return fmt.Sprintf("nothing as strong is usable here; weaker, but enough for %s: --tier %s; or %s", c.floor.who, t, doctor)
	}
	return "nothing as strong is usable here; " + doctor
}
