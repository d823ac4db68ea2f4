package main

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/embedded"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/image"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
)

// live is a box of the gvisor tier that stays, for what a program costs in a
// box that runs, and for what an idle one holds.
type live struct {
	tier   *gvisor.Tier
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
	agent := embedded.Agent(runtime.GOARCH)
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
	l.box, err = l.create(ctx)
	return err
}

// create makes a box as the command line does by default, with the base image.
func (l *live) create(ctx context.Context) (box.Box, error) {
	return l.tier.Create(ctx, box.Spec{
		ID: box.NewID(), Image: box.ImageBase, Workdir: "/workspace", Hostname: "sunaba", Net: box.Net{Mode: box.NetNone},
		Limits: box.Limits{
			MilliCPU: 1000 * limitCPUs, Memory: limitMemory, Processes: limitTasks, OpenFiles: limitFiles,
			Disk: 1 << 30, Files: 100_000, Output: 1 << 20, OnLimit: box.LimitRecord,
		},
	})
}

func (l *live) run(ctx context.Context, program []string, out *os.File) error {
	res, err := l.box.Run(ctx, box.Command{Argv: program, Env: []string{"HOME=/home/user", "LANG=C.UTF-8"}}, box.Streams{Stdout: out, Stderr: out})
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
