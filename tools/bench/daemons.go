package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

// running is the container, of docker and of podman, into which exec goes.
const running = "sunaba-bench"

// limitFlags are the same limits in docker's and podman's words.
func limitFlags() []string {
	return []string{
		"--memory", strconv.Itoa(limitMemory), "--memory-swap", strconv.Itoa(limitMemory), "--cpus", strconv.Itoa(limitCPUs),
		"--pids-limit", strconv.Itoa(limitTasks), "--ulimit", fmt.Sprintf("nofile=%d:%d", limitFiles, limitFiles), "--read-only",
	}
}

// docker is a daemon of the enclosure's own.
type docker struct {
	s      scratch
	root   string
	absent string
}

const dockerSocket = "unix:///run/bench-docker.sock"

func (d *docker) env() []string { return []string{"DOCKER_HOST=" + dockerSocket} }

func (d *docker) argv(args ...string) func([]string) []string {
	return func(program []string) []string {
		return slices.Concat([]string{"docker"}, args, limitFlags(), []string{tag(d.root)}, program)
	}
}

func (d *docker) exec(program []string) []string {
	return append([]string{"docker", "exec", running}, program...)
}

// start starts the daemon, and a container for exec.
func (d *docker) start(log io.Writer) {
	if err := d.try(log); err != nil {
		d.absent = err.Error()
	}
}

func (d *docker) try(log io.Writer) error {
	for _, p := range []string{"docker", "dockerd", "containerd", "runc"} {
		if _, err := find(p); err != nil {
			return err
		}
	}
	out, err := os.OpenFile(d.s.path("docker", "log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	daemon, err := find("dockerd")
	if err != nil {
		return err
	}
	cmd := exec.Command(daemon, "--data-root", d.s.path("docker", "data"), "--exec-root", "/run/bench-docker", "-p", "/run/bench-docker.pid", "-H", dockerSocket)
	cmd.Env = childEnv()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start dockerd: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	deadline := time.Now().Add(60 * time.Second)
	for {
		_, err := output(nil, "docker", "-H", dockerSocket, "version")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("dockerd does not answer, see %s: %w", out.Name(), err)
		}
		<-time.After(200 * time.Millisecond)
	}
	if _, err := output(nil, "docker", "-H", dockerSocket, "image", "inspect", tag(d.root)); err != nil {
		fmt.Fprintln(log, "bench: docker imports the root file system")
		if err := exec1(log, "docker", "-H", dockerSocket, "import", d.s.archive(d.root), tag(d.root)); err != nil {
			return err
		}
	}
	_, _ = output(nil, "docker", "-H", dockerSocket, "rm", "-f", running) // of a run that was killed
	args := slices.Concat([]string{"-H", dockerSocket, "run", "-d", "--name", running, "--network", "none"}, limitFlags(), []string{tag(d.root), "sleep", "infinity"})
	return exec1(log, "docker", args...)
}

// stop removes the container, so that the next run finds none.
func (d *docker) stop() {
	if d.absent == "" {
		_, _ = output(nil, "docker", "-H", dockerSocket, "rm", "-f", running)
	}
}

// podman has no daemon.
type podman struct {
	s      scratch
	root   string
	absent string
}

func (p *podman) global() []string {
	return []string{"--root", p.s.path("podman"), "--runroot", "/run/bench-podman"}
}

func (p *podman) argv(args ...string) func([]string) []string {
	return func(program []string) []string {
		// Without limits of its own for these, podman asks for more than a
		// caller without CAP_SYS_RESOURCE may have.
		return slices.Concat([]string{"podman"}, p.global(), args, []string{"--network", "none", "--ulimit", "nproc=4096:4096"}, limitFlags(), []string{tag(p.root)}, program)
	}
}

func (p *podman) start(log io.Writer) {
	if _, err := find("podman"); err != nil {
		p.absent = err.Error()
		return
	}
	if _, err := output(nil, "podman", append(p.global(), "image", "exists", tag(p.root))...); err != nil {
		fmt.Fprintln(log, "bench: podman imports the root file system")
		if err := exec1(log, "podman", append(p.global(), "import", "-q", p.s.archive(p.root), tag(p.root))...); err != nil {
			p.absent = err.Error()
		}
	}
}
