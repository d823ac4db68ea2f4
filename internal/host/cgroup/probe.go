package cgroup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs/parked"
)

// Probe really does, once, what every box needs: it makes groups, sets and
// reads back each limit, moves a child process in, kills it through the group
// and removes everything. The steps are "memory limit", "cpu limit", "pids
// limit", "process membership", "kill", "removal" and "counters".
func (m *Manager) Probe(ctx context.Context) []box.Step {
	var steps []box.Step
	for _, c := range controllers {
		steps = append(steps, m.probeLimit(ctx, c))
	}
	return append(steps, m.probeLife(ctx)...)
}

func (m *Manager) probeLimit(ctx context.Context, controller string) box.Step {
	l := map[string]Limits{"memory": {Memory: 64 << 20}, "cpu": {MilliCPU: 500}, "pids": {Pids: 16}}[controller]
	name := controller + " limit"
	g, err := m.Create(probeName(), l)
	if err != nil {
		return failed(name, err)
	}
	d, _ := g.dir(controller)
	if err := g.Remove(ctx); err != nil {
		return failed(name, err)
	}
	return works(name, fmt.Sprintf("set and read back in cgroup v%d at %s", d.version, d.base))
}

// probeLife takes a process through a group's life.
func (m *Manager) probeLife(ctx context.Context) []box.Step {
	l := Limits{Memory: 64 << 20, MilliCPU: 500, Pids: 16, AllowMissing: true}
	g, err := m.Create(probeName(), l)
	if err != nil {
		return []box.Step{failed("process membership", err)}
	}
	var steps []box.Step
	err = parked.Run(nil, func(pid int) error {
		if err := g.Add(pid); err != nil {
			steps = append(steps, failed("process membership", err))
			return nil
		}
		steps = append(steps, works("process membership", "a child was moved in and found there"))
		if err := g.Kill(ctx); err != nil {
			steps = append(steps, failed("kill", err))
			return nil
		}
		steps = append(steps, works("kill", "a child was killed by "+g.killer()))
		return nil
	})
	if err != nil {
		steps = append(steps, failed("process membership", err))
	}
	steps = append(steps, g.probeCounters())
	if err := g.Remove(ctx); err != nil {
		return append(steps, failed("removal", err))
	}
	return append(steps, works("removal", "nothing is left"))
}

// killer names the way in which Kill works on this host.
func (g *Group) killer() string {
	if d, ok := g.v2(); ok {
		if _, err := g.m.fs.Read(d.path + "/cgroup.events"); err == nil && g.m.fs.Write(d.path+"/cgroup.kill", "1") == nil {
			return "cgroup.kill"
		}
	}
	return "freezing and signaling each process"
}

func (g *Group) probeCounters() box.Step {
	s, err := g.Stats()
	if err != nil {
		return failed("counters", err)
	}
	var unknown []string
	for name, c := range map[string]Counter{"out-of-memory kills": s.OOMKills, "memory peak": s.MemoryPeak, "cpu time": s.CPU} {
		if c.Source == "" {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return box.Step{Name: "counters", State: box.Weak, Detail: "this kernel does not count: " + strings.Join(unknown, ", "),
			Advice: "use a newer kernel (5.19 or later counts all of them)"}
	}
	return box.Step{Name: "counters", State: box.Works, Detail: s.OOMKills.Source + ", " + s.MemoryPeak.Source + ", " + s.CPU.Source}
}

func probeName() string {
	return fmt.Sprintf("probe-%d-%s", time.Now().Unix(), strings.ToLower(rand.Text()[:8]))
}

func works(name, detail string) box.Step {
	return box.Step{Name: name, State: box.Works, Detail: detail}
}

func failed(name string, err error) box.Step {
	s := box.Step{Name: name, State: box.Missing, Detail: err.Error(), Advice: advice(err)}
	var be *box.Error
	if errors.As(err, &be) && be.Hint != "" {
		s.Advice = be.Hint // made where every tree's reason was known
	}
	return s
}

// advice says what a person can do about an error of the kernel.
func advice(err error) string {
	switch {
	case errors.Is(err, unix.EROFS):
		return "mount the control groups read-write; in Docker: --privileged --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup:rw"
	case errors.Is(err, fs.ErrPermission):
		return "run as root; or, on a host with control groups of version 2 alone, in a delegated group: systemd-run --user --scope -p Delegate=yes"
	case errors.Is(err, unix.EBUSY):
		return "this group holds other processes, so it cannot have limited children; start in a group of its own: systemd-run --scope -p Delegate=yes"
	default:
		return "mount the control groups of version 2 at /sys/fs/cgroup with the controllers memory, cpu and pids; some boards need the kernel parameter cgroup_enable=memory"
	}
}
