package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/embedded"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
)

// live is what this program does through the Go API, as a daemon would: a box of
// the gvisor tier that stays, for what a program costs in a box that runs and
// what an idle one holds, and whole lives of boxes without a front of their own.
type live struct {
	tier   *gvisor.Tier
	plain  *process.Tier
	box    box.Box
	absent string
}

func (l *live) start(ctx context.Context, s scratch) {
	if err := l.try(ctx, s); err != nil {
		l.absent = err.Error()
	}
}

func (l *live) try(ctx context.Context, s scratch) error {
	images, err := image.OpenStore(s.path("state", "images"))
	if err != nil {
		return err
	}
	groups, err := cgroup.Detect(cgroup.Root, cgroup.MountInfo, cgroup.SelfCgroup)
	if err != nil {
		return err
	}
	agent := embedded.Agent()
	if agent == nil {
		return fmt.Errorf("the agent was not built: run make agent")
	}
	program, err := host.Sealed("sunaba-agent", agent)
	if err != nil {
		return err
	}
	l.tier, err = gvisor.New(gvisor.Config{State: s.path("state"), Images: frame.Images{Store: images}, Groups: groups, Agent: agent, Program: program, Janitor: true})
	if err != nil {
		return err
	}
	l.plain, err = process.New(process.Config{State: s.path("state"), Images: frame.Images{Store: images}, Groups: groups, Agent: agent, Program: program, Janitor: true})
	if err != nil {
		return err
	}
	l.box, err = create(ctx, l.tier)
	return err
}

// create makes a box as the command line does by default, with the base image.
func create(ctx context.Context, t box.Tier) (box.Box, error) {
	return t.Create(ctx, box.Spec{
		ID: box.NewID(), Image: box.ImageBase, Workdir: "/workspace", Hostname: "sunaba", Net: box.Net{Mode: box.NetNone},
		Limits: box.Limits{
			MilliCPU: 1000 * limitCPUs, Memory: limitMemory, Processes: limitTasks, OpenFiles: limitFiles,
			Disk: 1 << 30, Files: 100_000, Output: 1 << 20, OnLimit: box.LimitRecord,
		},
	})
}

// run runs a program in the box that stays.
func (l *live) run(ctx context.Context, program []string, out *os.File) error {
	return in(ctx, l.box, program, out)
}

// life makes a box for one program and removes it.
func life(ctx context.Context, t box.Tier, program []string, out *os.File) error {
	b, err := create(ctx, t)
	if err != nil {
		return err
	}
	return errors.Join(in(ctx, b, program, out), b.Destroy(ctx))
}

func (l *live) lifePlain(ctx context.Context, program []string, out *os.File) error {
	return life(ctx, l.plain, program, out)
}

func (l *live) lifeGvisor(ctx context.Context, program []string, out *os.File) error {
	return life(ctx, l.tier, program, out)
}

// alone is a call that leaves nothing.
func alone(f func(context.Context, []string, *os.File) error) func(context.Context, []string, *os.File) (func() error, error) {
	return func(ctx context.Context, program []string, out *os.File) (func() error, error) {
		return func() error { return nil }, f(ctx, program, out)
	}
}

func in(ctx context.Context, b box.Box, program []string, out *os.File) error {
	res, err := b.Run(ctx, box.Command{Argv: program, Env: []string{"HOME=/home/user", "LANG=C.UTF-8"}}, box.Streams{Stdout: out, Stderr: out})
	if err == nil && (res.Cause != box.Exited || res.ExitCode != 0) {
		err = fmt.Errorf("the program ended with %s %d", res.Cause, res.ExitCode)
	}
	return err
}

func (l *live) stop(ctx context.Context) error {
	if l.box == nil {
		return nil
	}
	return l.box.Destroy(ctx)
}
