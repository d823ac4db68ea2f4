package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// workload is a program that peers run.
type workload struct {
	name string
	argv []string
	says string // on standard output
	// few marks one that is run only by the peers that name it.
	few bool
}

func workloads() []workload {
	return []workload{
		{name: "true", argv: []string{"true"}},
		{name: "python", argv: []string{"python3", "-c", "print(1)"}, says: "1\n"},
		{name: nameNumpy, argv: []string{"python3", "-c", "import numpy; print(numpy.ones(3).sum())"}, says: "3.0\n", few: true},
	}
}

// general are those that all peers run.
func general() []workload {
	return slices.DeleteFunc(workloads(), func(w workload) bool { return w.few })
}

// runs reports whether the peer takes part in a workload.
func (p peer) runs(w workload) bool {
	if len(p.only) > 0 {
		return slices.Contains(p.only, w.name)
	}
	return !w.few || slices.Contains(p.also, w.name)
}

// peer is one way to run a program.
type peer struct {
	name string
	what string // what it is, for the table's legend
	// argv is the command line for a program; call is for what has none. One
	// of them is set. What call returns is run when the time was taken, and
	// removes what is left.
	argv func(program []string) []string
	call func(ctx context.Context, program []string, out *os.File) (after func() error, err error)
	// ready is run before the time is taken; it may be nil.
	ready func(ctx context.Context) error
	// also names workloads of few that this peer runs, only those that it runs alone.
	also, only []string
	// silent peers run no program, and say whatever they say.
	silent bool
	// file is passed as descriptor 3.
	file string
	env  []string
	// absent says why the peer cannot be measured; empty if it can.
	absent string
}

// Names that targets and ratios refer to.
const (
	nameBwrap   = "bubblewrap"
	nameFilter  = "bubblewrap + seccomp"
	nameRunc    = "runc run"
	nameProcess = "sunaba process, base"
	nameGvisor  = "sunaba gvisor, base"
	nameExec    = "sunaba gvisor, exec"
	nameNumpy   = "numpy"

	nameWarmProcess = "sunaba process, warm box by HTTP"
	nameWarmGvisor  = "sunaba gvisor, warm box by HTTP"
	nameRestored    = "sunaba gvisor, template restored"
	nameTemplate    = "sunaba gvisor, template from the pool"
	nameDocker      = "docker run, no network"
	nameDExec       = "docker exec"
)

// target is a ratio that we want to reach, in the same run.
type target struct {
	peer, to string
	most     float64
	workload string // empty = all general ones
}

func targets() []target {
	return []target{
		{nameProcess, nameFilter, 1.3, ""},
		{nameGvisor, nameRunc, 1.6, ""},
		{nameGvisor, nameDocker, 0.2, ""},
		{nameExec, nameDExec, 0.15, ""},
		{nameWarmGvisor, nameDExec, 0.2, ""},
		{nameWarmGvisor, nameRunc, 0.6, ""},
		{nameWarmProcess, nameBwrap, 1.5, ""},
		{nameRestored, nameBwrap, 0.9, nameNumpy},
		{nameTemplate, nameBwrap, 0.25, nameNumpy},
	}
}

// setup is what the list of peers is made from.
type setup struct {
	scratch scratch
	root    string // folder of the root file system
	sunaba  string // our program
	npm     string // folder with node_modules
	docker  *docker
	podman  *podman
	live    *live
	service *service
}

// needs marks a peer as absent unless the programs are there.
func (p peer) needs(programs ...string) peer {
	for _, name := range programs {
		if _, err := find(name); err != nil && p.absent == "" {
			p.absent = err.Error()
		}
	}
	return p
}

func (s *setup) peers() []peer {
	fixed := func(before ...string) func([]string) []string {
		return func(program []string) []string { return append(slices.Clone(before), program...) }
	}
	bwrap := func(more ...string) func([]string) []string {
		return fixed(slices.Concat([]string{"bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"}, more,
			[]string{"--ro-bind", s.root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"})...)
	}
	ours := func(flags ...string) func([]string) []string {
		return fixed(slices.Concat([]string{s.sunaba, "run", "--state", s.scratch.path("state")}, flags, []string{"--"})...)
	}
	all := []peer{
		{name: "bare exec", what: "fork and exec on the host, no walls", argv: func(program []string) []string {
			return append([]string{"/usr/bin/" + program[0]}, program[1:]...)
		}},
		{name: "sunaba, its start", what: "`sunaba version`: what the program itself needs before it does anything, no box", silent: true,
			argv: func([]string) []string { return []string{s.sunaba, "version"} }},
		peer{name: "unshare", what: "all namespaces but time, the root changed; no limits, no filter, all capabilities of its user namespace",
			argv: fixed("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--cgroup", "--root="+s.root, "--mount-proc")}.needs("unshare"),
		peer{name: nameBwrap, what: "the same namespaces, no capability; no limits, no filter", argv: bwrap(), also: []string{nameNumpy}}.needs("bwrap"),
		peer{name: nameFilter, what: "the same, under our process tier's own filter", argv: bwrap("--seccomp", "3"), file: s.scratch.path("seccomp.bpf")}.needs("bwrap"),
		{name: "sunaba process, host", what: "`sunaba run --trust trusted`, the host's /usr", argv: ours("--trust", "trusted", "--image", "host")},
		{name: nameProcess, what: "the same with the image that all others have as a folder", argv: ours("--trust", "trusted", "--image", "base")},
		{name: "sunaba process, in a daemon", what: "a whole box with the base image through the Go API, as a daemon would make it: no front, and no client, in the figure", call: alone(s.live.lifePlain), absent: s.live.absent},
		peer{name: "crun run", what: "control groups for all limits; no filter, no user namespace, as its `spec` says", argv: s.oci("crun")}.needs("crun"),
		peer{name: nameRunc, what: "likewise", argv: s.oci("runc")}.needs("runc"),
		{name: "sunaba gvisor, host", what: "`sunaba run`, the host's /usr", argv: ours("--image", "host")},
		{name: nameGvisor, what: "the same with the base image", argv: ours("--image", "base")},
		{name: "sunaba gvisor, in a daemon", what: "likewise", call: alone(s.live.lifeGvisor), absent: s.live.absent},
		{name: nameExec, what: "one more program in a box that runs, through the Go API: no client process is in the figure", call: alone(s.live.run), absent: s.live.absent},
		peer{name: "srt", what: "npm's @anthropic-ai/sandbox-runtime, on the host's root", argv: s.srt}.needs("node", "bwrap", "socat", "rg"),
		{name: "docker run", what: "bridge network, default filter", argv: s.docker.argv("run", "--rm"), absent: s.docker.absent, env: s.docker.env()},
		{name: nameDocker, what: "`--network none`, default filter", argv: s.docker.argv("run", "--rm", "--network", "none"), absent: s.docker.absent, env: s.docker.env()},
		{name: nameDExec, what: "one more program in a container that runs", argv: s.docker.exec, absent: s.docker.absent, env: s.docker.env()},
		{name: "podman run, no network", what: "as root, `--network none`, default filter", argv: s.podman.argv("run", "--rm"), absent: s.podman.absent},
	}
	all = append(all, s.service.peers()...)
	for i := range all {
		if all[i].name == "srt" && all[i].absent == "" {
			if _, err := os.Stat(s.npm + "/node_modules/.bin/srt"); err != nil {
				all[i].absent = "@anthropic-ai/sandbox-runtime is not in " + s.npm
			}
		}
	}
	return all
}

// oci runs a fresh container from a bundle that was made for the program.
func (s *setup) oci(runtime string) func([]string) []string {
	var n atomic.Int64 // workers run at the same time
	return func(program []string) []string {
		name := strings.ReplaceAll(runtime+"-"+program[0], "/", "-")
		return []string{runtime, "--root", "/run/" + runtime + "-bench", "run", "--bundle", s.scratch.path("bundles", name), fmt.Sprintf("%s-%d-%d", name, os.Getpid(), n.Add(1))}
	}
}

// bundles makes what oci uses.
func (s *setup) bundles(programs [][]string) error {
	for _, runtime := range []string{"runc", "crun"} {
		if _, err := find(runtime); err != nil {
			continue
		}
		for _, program := range programs {
			if _, err := s.scratch.bundle(runtime, s.root, runtime+"-"+program[0], program); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *setup) srt(program []string) []string {
	var line []string
	for _, a := range program {
		line = append(line, "'"+a+"'")
	}
	return []string{s.npm + "/node_modules/.bin/srt", "-c", strings.Join(line, " ")}
}
