package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/posture"
	"github.com/sunaba-dev/sunaba/internal/tier/probe"
)

// probeBox makes a real box, reads what its walls are while a program stands in
// it, runs the agent in it, and destroys it. What the box reports as weak and no
// step has told before, it tells.
func (t *Tier) probeBox(ctx context.Context, told []string) (s probe.Step) {
	fail := func(err error) probe.Step {
		var advice string
		var be *box.Error
		if errors.As(err, &be) && !strings.Contains(be.Hint, "doctor") {
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
	pb, ok := b.(*pbox)
	if !ok {
		return fail(fmt.Errorf("cannot look at box: it is a %T", b))
	}
	start = time.Now()
	v, err := pb.look(ctx)
	if err != nil {
		return fail(err)
	}
	if len(v.bad) > 0 {
		return fail(fmt.Errorf("cannot trust the box's walls: %s", strings.Join(v.bad, "; ")))
	}
	ran := time.Since(start)
	if err := pb.Collect(ctx, image.DefaultWorkdir, io.Discard); err != nil {
		return fail(err)
	}
	s = probe.Needed(trial.Works(probe.StepBox, fmt.Sprintf("made in %d ms, a program ran in %d ms, %d threads of %d processes are as promised, the agent answered",
		made.Milliseconds(), ran.Milliseconds(), v.threads, v.processes)))
	for _, w := range b.Weak() {
		if !slices.Contains(told, w) {
			s.State, s.Weak = box.Weak, append(s.Weak, w)
			s.Detail += "; weak: " + w
		}
	}
	return s
}

// look runs a program that answers when it runs, and reads the posture of the
// box's processes before it lets the program end.
func (b *pbox) look(ctx context.Context) (v survey, err error) {
	in, end := io.Pipe()
	var seen bool
	out := listener(func(p []byte) (int, error) {
		if !seen {
			seen = true
			v, err = b.survey()
			end.Close()
		}
		return len(p), nil
	})
	go func() { _, _ = end.Write([]byte("x\n")) }()
	res, rerr := b.Run(ctx, box.Command{Argv: []string{"cat"}}, box.Streams{Stdin: in, Stdout: out})
	end.Close()
	in.Close()
	switch {
	case rerr != nil:
		return v, rerr
	case res.Cause != box.Exited || res.ExitCode != 0:
		return v, fmt.Errorf("cannot run a program: it ended with %s, code %d", res.Cause, res.ExitCode)
	case !seen:
		return v, errors.New("cannot run a program: it did not answer")
	case err != nil:
		return v, fmt.Errorf("cannot read the box's walls: %w", err)
	}
	return v, nil
}

// listener is a function that is written to.
type listener func([]byte) (int, error)

func (w listener) Write(p []byte) (int, error) { return w(p) }

// survey is what was seen of a live box.
type survey struct {
	processes, threads int
	bad                []string // what is not as promised
}

// survey reads the posture of the box's live processes: the cell, which is not
// under a filter except for the one thread that starts programs, and the
// programs, which are what the walls are for.
func (b *pbox) survey() (v survey, err error) {
	self, err := posture.Read(syscall.Getpid())
	if err != nil {
		return v, err
	}
	all, err := posture.Tree(b.Child.Pid())
	if err != nil {
		return v, err
	}
	v.bad = posture.Traced(all)
	for i, p := range all {
		v.processes++
		v.threads += len(p.Threads)
		if i == 0 {
			v.bad = append(v.bad, p.Unprivileged()...)
			v.bad = append(v.bad, p.Bounded()...)
			if p.Hidden { // it is closed to all but root
				v.bad = append(v.bad, p.Shares(self)...)
			} else {
				v.bad = append(v.bad, p.Apart(self)...)
			}
			if !slices.ContainsFunc(p.Threads, func(t posture.Thread) bool { return t.Seccomp == 2 }) {
				v.bad = append(v.bad, "no thread of the cell is under a system-call filter")
			}
		} else {
			v.bad = append(v.bad, p.Confined(self)...)
		}
		v.bad = append(v.bad, b.outside(p)...)
	}
	if len(all) < 2 {
		v.bad = append(v.bad, "found no program in the box")
	}
	return v, nil
}

// outside says whether a process is not in its box's group though the box has
// one.
func (b *pbox) outside(p *posture.Process) []string {
	if b.Group == nil || slices.ContainsFunc(p.Groups, func(line string) bool { return strings.HasSuffix(line, "/"+b.Group.Name()) }) {
		return nil
	}
	return []string{fmt.Sprintf("process %d (%s) is not in control group %s", p.PID, p.Args[0], b.Group.Name())}
}
