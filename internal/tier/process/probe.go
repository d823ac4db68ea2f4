package process

import (
	"context"
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
	"github.com/sunaba-dev/sunaba/internal/host/jail"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
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
	p.Add(probe.State(t.cfg.State, nil)) // a store in memory is told of as such
	if t.Root() {
		for _, s := range blockfs.Probe(ctx, t.StoreDir()) {
			p.Add(told(probe.Needed(s)))
		}
		p.Add(probe.IDMap(t.cfg.State, p.Child.HostUID))
	}
	p.Add(probe.Groups(ctx, t.cfg.Groups, weakMemory, weakCPU)...)
	hostSteps(ctx, p, t.RunDir())
	base := probe.BaseImage(t.cfg.Images.Store)
	if err := t.canExecute(); err != nil && !t.Root() {
		base = probe.Step{Step: trial.Missing(base.Name, err, adviceNoExec)}
	}
	p.Add(probe.Terminal(), probe.HostImage(ctx, t.cfg.Images, !t.Root()), base, probe.Agent(t.cfg.Agent))
	if broken := p.FirstMissing(); broken == "" {
		p.Add(t.probeBox(ctx, p.Caps().Weak))
	} else {
		p.Add(probe.NotTried(probe.StepBox, broken))
	}
	return p.Caps()
}

const adviceNoExec = "name a state folder on a file system that is not mounted noexec: --state DIR or SUNABA_STATE; or use --image host"

// canExecute says whether programs of an image that is extracted could run: an
// ordinary user's boxes show the tree where it lies.
func (t *Tier) canExecute() error {
	no, err := host.NoExec(t.State)
	if err == nil && no {
		err = box.Errorf(box.Unusable, "create box", "cannot execute programs of the image: %s, where it is extracted, is mounted noexec", t.State).
			WithHint(adviceNoExec)
	}
	return err
}

// ProbeWithout answers for a Tier that could not be made: why says what failed
// about its state folder, images or groups. What needs none of these is tried,
// with this program in the agent's place.
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

// newProbe has everything tried by the file and with the rights of a cell.
func (t *Tier) newProbe() *probe.Probe {
	p := &probe.Probe{}
	p.Child.HostUID, p.Child.HostGID = t.HostUser(box.NewID())
	p.Child.Exe, p.Child.Caps = t.agent, cellCaps(box.Spec{})
	return p
}

// hostSteps tries what a box needs of the kernel. dir is a folder of ours, over
// which the tried processes mount in namespaces of their own.
func hostSteps(ctx context.Context, p *probe.Probe, dir string) {
	p.Add(probe.Devices())
	if p.Works(probe.StepDevices) {
		p.Add(p.Program(ctx, "the agent"))
	} else {
		p.Add(probe.NotTried(probe.StepProgram, probe.StepDevices))
	}
	p.Namespaces(ctx, true)
	from := trial.DevicesHost
	if host.IsRoot() {
		if devices, err := jail.Devices(); err == nil { // else a box is weak, and says so
			defer devices.Close()
			from, p.Passed = trial.DevicesPassed, []*os.File{devices}
		}
	}
	for _, s := range p.Inside(ctx, trial.CellSteps(), trial.Argv, trial.Cell, from, dir) {
		p.Add(told(s))
	}
}

// told is for steps whose detail, if they are weak, is what a box reports.
func told(s probe.Step) probe.Step {
	if s.State == box.Weak {
		s.Weak = []string{s.Detail}
	}
	return s
}
