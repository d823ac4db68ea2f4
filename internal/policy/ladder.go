package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// ladder lists the ranked tiers from weakest to strongest. Equal ranks have
// walls of the same kind; the one named first is preferred.
func ladder() []box.TierName {
	return []box.TierName{box.TierProcess, box.TierContainer, box.TierDocker, box.TierGvisor, box.TierMicroVM, box.TierFirecracker}
}

// rank orders walls by what a program must break to reach the host:
//
//	4  a hypervisor, from a kernel of its own
//	3  a user-space kernel, and the filter behind it
//	2  the host kernel, inside an engine's namespaces
//	1  the host kernel, inside our namespaces and filter
//	0  unranked: wasm stands beside the ladder, for modules only
func rank(t box.TierName) int {
	switch t {
	case box.TierMicroVM, box.TierFirecracker:
		return 4
	case box.TierGvisor:
		return 3
	case box.TierContainer, box.TierDocker:
		return 2
	case box.TierProcess:
		return 1
	}
	return 0
}

// Stronger reports whether a has strictly stronger walls than b. Wasm and
// unknown names are never stronger than a tier of the ladder.
func Stronger(a, b box.TierName) bool { return rank(a) > rank(b) }

// Meets reports whether tier satisfies a minimum. Equal kinds of walls meet
// each other: docker meets container. An empty or auto minimum is met by all.
// Wasm stands beside the ladder and meets the minimum process at most.
func Meets(tier, minimum box.TierName) bool {
	if tier == box.TierWasm {
		return rank(minimum) <= rank(box.TierProcess)
	}
	return rank(tier) >= rank(minimum)
}

// TrustFloor is the weakest tier that code of this trust may run in.
func TrustFloor(t box.Trust) box.TierName {
	switch t {
	case box.Internal, box.Trusted:
		return box.TierProcess
	}
	return box.TierGvisor
}

// floor is one lower bound and whose it is.
type floor struct {
	tier  box.TierName
	who   string // as in "trust untrusted"
	trust bool
}

// says puts the bound in words.
func (f floor) says() string {
	if f.trust {
		return fmt.Sprintf("%s needs at least %s", f.who, f.tier)
	}
	return fmt.Sprintf("%s is %s", f.who, f.tier)
}

// floors lists all bounds of a request, the trust floor first.
func floors(req Request) []floor {
	fs := []floor{{TrustFloor(req.Trust), "trust " + string(req.Trust), true}}
	for _, m := range []floor{
		{req.MinTier, "the tenant's minimum tier", false},
		{req.LabelMinTier, "the data label's minimum tier", false},
	} {
		if m.tier != "" && m.tier != box.TierAuto {
			fs = append(fs, m)
		}
	}
	return fs
}

// strongest returns the highest floor; of equals the first.
func strongest(fs []floor) floor {
	top := fs[0]
	for _, f := range fs[1:] {
		if Stronger(f.tier, top.tier) {
			top = f
		}
	}
	return top
}

// nearest returns min itself if it is among the candidates, else the weakest
// of them that meets it.
func nearest(candidates []box.TierName, min box.TierName) (box.TierName, bool) {
	if slices.Contains(candidates, min) {
		return min, true
	}
	for _, t := range ladder() {
		if slices.Contains(candidates, t) && Meets(t, min) {
			return t, true
		}
	}
	return "", false
}

func list[T ~string](names []T) string {
	s := make([]string, len(names))
	for i, n := range names {
		s[i] = string(n)
	}
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}
