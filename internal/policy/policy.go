// Package policy decides. It takes what was asked for and what this host can
// do, and answers with the tier and the final [box.Spec], or with a denial that
// carries its reason and the way out.
//
// Nothing here does I/O, so the same question always has the same answer and
// the whole table can be read in testdata/decide.golden. Two rules hold
// everywhere: a box never gets weaker walls than any floor demands, and a box
// never silently gets other walls than were asked for. Where the wanted walls
// are missing the answer is an error that names what could be used instead.
//
// The checks of paths are textual. A path that is fine as text may still lead
// to a refused file by a link or by a second name; whoever opens the path
// compares it by resolved name and inode with [RefusedSources].
package policy

import (
	"slices"

	"github.com/sunaba-dev/sunaba/box"
)

// Request is everything a decision rests on, the host aside.
type Request struct {
	Runtime      box.TierName // from the configuration; auto or empty lets the floors decide
	TierFlag     box.TierName // asked for by this very call; beats Runtime; empty or auto if none
	Trust        box.Trust    // how much the caller trusts the code
	MinTier      box.TierName // the tenant's minimum; empty or auto if none
	LabelMinTier box.TierName // the minimum of the most sensitive data shown to the box; empty or auto if none

	// AllowWeaker lets an explicit choice go below the floor that Trust sets.
	// It lifts no minimum of a tenant or a label, and nothing for hostile code.
	AllowWeaker bool
	// MustNotBeWeak refuses a tier that cannot enforce all it should here.
	MustNotBeWeak bool
	// MountRoots, if not nil, are the only folders of the host below which the
	// sources of mounts may lie, with all links resolved.
	MountRoots []string
	// Reach are the rules of the box's network, compiled, for who enforces them; not
	// looked at here. Nil = there are none.
	Reach []byte

	Spec box.Spec
}

// Host is what this build and this host offer.
type Host struct {
	Built  []box.TierName            // tiers in this binary
	Usable map[box.TierName]box.Caps // what probing found; a tier that is not here counts as not usable
	// Gateway says that there is one for the network of boxes.
	Gateway bool
}

// Decision is the answer.
type Decision struct {
	Tier   box.TierName
	Reason string // one sentence, for the result's tier_reason
	Spec   box.Spec
}

// Decide chooses the tier and checks the spec. The error is a [*box.Error]:
//
//   - Invalid: a name is unknown, or a limit, path or mount makes no sense
//   - Denied: a floor, a refused mount source, or MustNotBeWeak forbids it
//   - Unsupported: the tier or network is not in this build
//   - Unusable: the tier is in this build but does not work on this host
//
// Its hint names the way out where there is one. Decide keeps no reference to
// the request's slices and is safe for concurrent use.
func Decide(req Request, host Host) (Decision, error) {
	if err := checkNames(req); err != nil {
		return Decision{}, err
	}
	spec, err := checkSpec(req.Spec)
	if err != nil {
		return Decision{}, err
	}
	if err := checkNet(req, host); err != nil {
		return Decision{}, err
	}
	c, err := choose(req, host)
	if err != nil {
		return Decision{}, err
	}
	if err := checkHost(req, host, c); err != nil {
		return Decision{}, err
	}
	return Decision{Tier: c.tier, Reason: c.reason, Spec: spec}, nil
}

func checkNames(req Request) error {
	for _, n := range []struct {
		what string
		tier box.TierName
		min  bool
	}{
		{"runtime", req.Runtime, false},
		{"--tier", req.TierFlag, false},
		{"the tenant's minimum tier", req.MinTier, true},
		{"the data label's minimum tier", req.LabelMinTier, true},
	} {
		if n.tier == "" || n.tier == box.TierAuto {
			continue
		}
		if !slices.Contains(box.TierNames(), n.tier) {
			return box.Errorf(box.Invalid, op, "cannot choose a tier: %s is %q; allowed: %s", n.what, n.tier, list(box.TierNames()))
		}
		if n.min && n.tier == box.TierWasm {
			return box.Errorf(box.Invalid, op, "cannot choose a tier: %s is wasm, which stands beside the ladder and is no minimum", n.what)
		}
	}
	if !slices.Contains(box.Trusts(), req.Trust) {
		return box.Errorf(box.Invalid, op, "cannot choose a tier: trust is %q; allowed: %s", req.Trust, list(box.Trusts()))
	}
	return nil
}

// checkSpec returns a copy of the spec that shares nothing mutable with it.
func checkSpec(spec box.Spec) (box.Spec, error) {
	if err := CheckWorkdir(spec.Workdir); err != nil {
		return spec, named(err, "cannot use writable_dir %q", spec.Workdir)
	}
	if err := CheckMounts(spec); err != nil {
		return spec, err
	}
	if err := CheckVolumes(spec); err != nil {
		return spec, err
	}
	if err := CheckLimits(spec.Limits); err != nil {
		return spec, err
	}
	switch spec.Image {
	case box.ImageHost, box.ImageBase:
	default:
		return spec, box.Errorf(box.Invalid, op, "cannot use image %q: allowed: host, base", spec.Image)
	}
	spec.Mounts = slices.Clone(spec.Mounts)
	spec.Volumes = slices.Clone(spec.Volumes)
	spec.NoMount = slices.Clone(spec.NoMount)
	spec.Seeds = slices.Clone(spec.Seeds)
	return spec, nil
}

// checkNet refuses a network that nobody would judge.
func checkNet(req Request, host Host) error {
	mode := req.Spec.Net.Mode
	switch {
	case mode == box.NetNone:
		return nil
	case mode != box.NetAllowlist:
		return box.Errorf(box.Unsupported, op, "cannot use network mode %q; allowed: none, allowlist", mode)
	case !host.Gateway:
		return box.Errorf(box.Unsupported, op, "cannot use network mode %q: there is no gateway here; allowed: none", mode)
	case len(req.Reach) == 0:
		return box.Errorf(box.Invalid, op, "cannot use network mode %q without rules", mode)
	}
	return nil
}

const op = "decide"
