package gvisor

import (
	"context"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
	"github.com/sunaba-dev/sunaba/internal/tier/probe"
)

// Probe implements box.Tier: it does, once, each thing that a box needs, in
// that order, and at last makes a whole box and reads back what its walls are.
// Nothing is concluded from a version number. It leaves nothing but the host
// image in the store, which the next box would make anyway.
func (t *Tier) Probe(ctx context.Context) box.Caps {
	ctx, cancel := context.WithTimeout(ctx, probe.Timeout)
	defer cancel()
	p := t.newProbe()
	p.Add(probe.State(t.cfg.State, t.weakStore()))
	hostSteps(ctx, p, t.RunDir())
	p.Add(probe.Groups(ctx, t.cfg.Groups, weakMemory, weakCPU)...)
	p.Add(t.probeStore())
	if t.Root() {
		p.Add(probe.IDMap(t.cfg.State, p.Child.HostUID))
	}
	p.Add(probe.Terminal(), probe.HostImage(ctx, t.cfg.Images, false), probe.BaseImage(t.cfg.Images.Store), probe.Agent(t.cfg.Agent))
	if broken := p.FirstMissing(); broken == "" {
		p.Add(t.probeBox(ctx))
	} else {
		p.Add(probe.NotTried(probe.StepBox, broken))
	}
	return p.Caps()
}

// ProbeWithout answers for a Tier that could not be made: why says what failed
// about its state folder, images or groups. What needs none of these is tried.
func ProbeWithout(ctx context.Context, why error) box.Caps {
	ctx, cancel := context.WithTimeout(ctx, probe.Timeout)
	defer cancel()
	p := (&Tier{Site: &frame.Site{}}).newProbe()
	p.Add(probe.NoTier(why))
	broken := p.FirstMissing()
	hostSteps(ctx, p, "/tmp")
	p.Add(probe.Terminal(), probe.NotTried(probe.StepBox, broken))
	return p.Caps()
}

func (t *Tier) newProbe() *probe.Probe {
	p := &probe.Probe{}
	p.Child.HostUID, p.Child.HostGID = t.HostUser(box.NewID())
	return p
}

// hostSteps tries what a box needs of the kernel. dir is a folder of ours, over
// which the tried processes mount in namespaces of their own.
func hostSteps(ctx context.Context, p *probe.Probe, dir string) {
	p.Add(probe.Devices("/tmp"))
	if p.Works(probe.StepDevices) {
		p.Add(p.Program(ctx, host.SelfExe))
	} else {
		p.Add(probe.NotTried(probe.StepProgram, probe.StepDevices))
	}
	p.Namespaces(ctx, false)
	steps := p.Inside(ctx, insideSteps(), argvProbe, probeInside, dir)
	for i, s := range steps {
		if s.Name == stepNested && !s.Follows && steps[0].State == box.Missing {
			steps[i] = probe.NotTried(s.Name, steps[0].Name) // it is set up through /proc
		}
	}
	p.Add(steps...)
}
