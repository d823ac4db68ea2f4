package gvisor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// probeTimeout bounds a whole probe; a host that works needs a second.
const probeTimeout = 20 * time.Second

// Probe implements box.Tier: it does, once, each thing that a box needs, in
// that order, and at last makes a whole box and reads back what its walls are.
// Nothing is concluded from a version number. It leaves nothing but the host
// image in the store, which the next box would make anyway.
func (t *Tier) Probe(ctx context.Context) box.Caps {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	p := &prober{}
	p.uid, p.gid = t.HostUser(box.NewID())
	p.add(t.probeState())
	p.host(ctx, t.RunDir())
	t.probeGroups(ctx, p)
	p.add(t.probeStore())
	if t.Root() {
		p.add(t.probeIDMap(p.uid))
	}
	p.add(probeTerminal())
	p.add(t.probeHostImage(ctx))
	p.add(t.probeBaseImage())
	p.add(t.probeAgent())
	if p.usable() {
		p.add(t.probeBox(ctx))
	} else {
		p.add(notTried(stepBox, p.firstMissing()))
	}
	return p.caps()
}

// ProbeWithout answers for a Tier that could not be made: why says what failed
// about its state folder, images or groups. What needs none of these is tried.
func ProbeWithout(ctx context.Context, why error) box.Caps {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	t := &Tier{Site: &frame.Site{}}
	p := &prober{}
	p.uid, p.gid = t.HostUser(box.NewID())
	p.add(step{Step: missing(stepState, why, adviceState(why)), needed: true})
	p.host(ctx, "/tmp")
	p.add(probeTerminal())
	p.add(notTried(stepBox, stepState))
	return p.caps()
}

// Names of the steps that others refer to.
const (
	stepState   = "state folder"
	stepDevices = "devices and folders"
	stepProgram = "own program"
	stepUser    = "user namespace"
	stepNested  = "nested user namespace"
	stepAll     = "all namespaces at once"
	stepBox     = "whole box"
)

// step is a box.Step and what it means for the tier.
type step struct {
	box.Step
	// needed steps are those without which there is no box. A step that is
	// missing and not needed takes one feature away.
	needed  bool
	weak    []string // what a box would report, if the step is weak
	follows bool     // not tried, because of another step
}

// prober collects steps.
type prober struct {
	uid, gid int // who a box would be on the host
	steps    []step
}

func (p *prober) add(s ...step) { p.steps = append(p.steps, s...) }

// works reports whether the named step was tried and worked.
func (p *prober) works(name string) bool {
	return slices.ContainsFunc(p.steps, func(s step) bool { return s.Name == name && s.State == box.Works })
}

func (p *prober) usable() bool { return p.firstMissing() == "" }

func (p *prober) firstMissing() string {
	for _, s := range p.steps {
		if s.needed && s.State == box.Missing {
			return s.Name
		}
	}
	return ""
}

// caps sums up.
func (p *prober) caps() box.Caps {
	c := box.Caps{Usable: p.usable(), Steps: []box.Step{}, Weak: []string{}, Missing: []string{}}
	for _, s := range p.steps {
		c.Steps = append(c.Steps, s.Step)
		for _, w := range s.weak {
			if !slices.Contains(c.Weak, w) {
				c.Weak = append(c.Weak, w)
			}
		}
		if s.needed && s.State == box.Missing && !s.follows {
			c.Missing = append(c.Missing, s.Name+": "+s.Detail)
		}
	}
	return c
}

func works(name, detail string) box.Step {
	return box.Step{Name: name, State: box.Works, Detail: detail}
}

func missing(name string, err error, advice string) box.Step {
	return box.Step{Name: name, State: box.Missing, Detail: err.Error(), Advice: advice}
}

// notTried is a needed step that cannot work because another one does not.
func notTried(name, because string) step {
	return step{needed: true, follows: true, Step: missing(name, errors.New("not tried: it needs "+because), "")}
}
