package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"gvisor.dev/gvisor/runsc/config"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/posture"
	"github.com/sunaba-dev/sunaba/internal/tier/probe"
)

// probeBox makes a real box, reads what its walls are while it stands, runs a
// program and the agent in it, and destroys it.
func (t *Tier) probeBox(ctx context.Context) (s probe.Step) {
	fail := func(err error) probe.Step {
		advice := "run again with SUNABA_DEBUG=DIR (a folder with mode 1777) and look at the last lines there"
		var be *box.Error
		if errors.As(err, &be) && be.Hint != "" && !strings.Contains(be.Hint, "doctor") {
			advice = be.Hint
		}
		return probe.Needed(trial.Missing(probe.StepBox, err, advice))
	}
	start := time.Now()
	b, err := t.Create(ctx, probe.Spec())
	if err != nil {
		return fail(err)
	}
	made := time.Since(start)
	defer func() {
		start := time.Now()
		if err := b.Destroy(context.WithoutCancel(ctx)); err != nil {
			s = fail(err)
		} else if s.State != box.Missing {
			s.Detail += fmt.Sprintf(", destroyed in %d ms", time.Since(start).Milliseconds())
		}
	}()
	gb, ok := b.(*gbox)
	if !ok {
		return fail(fmt.Errorf("cannot look at box: it is a %T", b))
	}
	walls, err := gb.walls()
	if err != nil {
		return fail(fmt.Errorf("cannot read the box's walls: %w", err))
	}
	if len(walls.bad) > 0 {
		return fail(fmt.Errorf("cannot trust the box's walls: %s", strings.Join(walls.bad, "; ")))
	}
	start = time.Now()
	res, err := b.Run(ctx, box.Command{Argv: []string{"true"}}, box.Streams{})
	if err == nil && (res.Cause != box.Exited || res.ExitCode != 0) {
		err = fmt.Errorf("cannot run a program: it ended with %s, code %d", res.Cause, res.ExitCode)
	}
	if err != nil {
		return fail(err)
	}
	ran := time.Since(start)
	if err := gb.Collect(ctx, image.DefaultWorkdir, io.Discard); err != nil {
		return fail(err)
	}
	s = probe.Needed(trial.Works(probe.StepBox, fmt.Sprintf("made in %d ms, %d threads of %d processes are as promised, a program ran in %d ms, the agent answered",
		made.Milliseconds(), walls.threads, walls.processes, ran.Milliseconds())))
	if walls.kept {
		s.State, s.Weak, s.Advice = box.Weak, []string{weakCgo}, "build with make, or with CGO_ENABLED=0 go build ./cmd/sunaba"
	}
	return s
}

// survey is what was seen of a live box.
type survey struct {
	processes, threads int
	bad                []string // what is not as promised
	kept               bool     // the gofer has the capabilities that weakCgo tells of
}

// walls reads the posture of the box's live processes.
func (b *gbox) walls() (v survey, err error) {
	self, err := posture.Read(syscall.Getpid())
	if err != nil {
		return v, err
	}
	all, err := posture.Tree(b.Child.Pid())
	if err != nil {
		return v, err
	}
	v.bad = posture.Traced(all)
	var sentries, gofers int
	for i, p := range all {
		v.processes++
		v.threads += len(p.Threads)
		switch p.Args[0] {
		case argvSandbox:
			sentries++
		case argvGofer:
			gofers++
			v.kept = setAside(p)
		}
		if i == 0 {
			v.bad = append(v.bad, p.Unprivileged()...)
			v.bad = append(v.bad, p.Apart(self)...)
		} else {
			v.bad = append(v.bad, p.Wall(self)...)
		}
		v.bad = append(v.bad, b.outside(p)...)
	}
	if sentries != 1 || gofers != 1 {
		v.bad = append(v.bad, fmt.Sprintf("found %d sentries and %d gofers, not one of each", sentries, gofers))
	}
	return v, nil
}

// goferCaps is what gVisor leaves a gofer: chown, dac_override,
// dac_read_search, fowner, fsetid, sys_chroot, in its own user namespace.
const goferCaps = 0x4001f

// setAside takes the capabilities that a build with cgo cannot take from a gofer
// out of the judgement, and reports whether there were any: they are told of as
// weak.
func setAside(p *posture.Process) (kept bool) {
	if !config.CgoEnabled {
		return false
	}
	for i := range p.Threads {
		t := &p.Threads[i]
		for _, set := range []*uint64{&t.Effective, &t.Permitted, &t.Inheritable, &t.Ambient} {
			kept = kept || *set&goferCaps != 0
			*set &^= goferCaps
		}
	}
	return kept
}

// outside lists the trees of control groups in which a process is not in its
// box's group though the box has one.
func (b *gbox) outside(p *posture.Process) []string {
	if b.Group == nil {
		return nil
	}
	inside := slices.ContainsFunc(p.Groups, func(line string) bool { return strings.HasSuffix(line, "/"+b.Group.Name()) })
	if inside {
		return nil
	}
	return []string{fmt.Sprintf("process %d (%s) is not in control group %s", p.PID, p.Args[0], b.Group.Name())}
}
