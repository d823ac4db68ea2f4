package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs/parked"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
)

// argvProbe is the name of a process that Probe starts, see Dispatch; its first
// argument is one of these.
const (
	argvProbe    = "sunaba-gvisor-probe"
	probeInside  = "inside"  // DIR USR: try what a runner does, say it as JSON
	probeDropped = "dropped" // DIR STEPS: the rest of inside, without rights
	probeNested  = "nested"  // DIR: mount something where a sentry would
)

const stepNested = "nested user namespace"

// insideSteps lists the steps of probeInside, in order.
func insideSteps() []string {
	return []string{trial.StepProc, trial.StepFolders, stepNested, "process tracing", "system-call filter"}
}

// probeMain is the whole life of a tried process.
func probeMain(args []string) int {
	switch {
	case len(args) == 4 && args[1] == probeInside:
		fmt.Fprintln(os.Stderr, probeRunner(args[2], args[3]))
	case len(args) == 4 && args[1] == probeDropped:
		var steps []box.Step
		if json.Unmarshal([]byte(args[3]), &steps) != nil {
			return 1
		}
		b, err := json.Marshal(append(steps, probeWithoutRights(args[2])...))
		if err == nil {
			_, err = os.Stdout.Write(b)
		}
		if err == nil {
			return 0
		}
	case len(args) == 3 && args[1] == probeNested:
		if host.PrivateMounts() == nil && host.MountTmpfs(args[2]) == nil {
			return 0
		}
	}
	return 1
}

// probeRunner makes the mounts that a runner makes, gives up its rights as a
// runner does, and goes on with probeWithoutRights; see runner.setup. It returns
// only on failure.
func probeRunner(dir, usr string) error {
	b, err := json.Marshal([]box.Step{trial.FreshProc(), trial.HostFolders(dir, usr)})
	if err != nil {
		return err
	}
	return host.DropAllByExec([]string{argvProbe, probeDropped, dir, string(b)})
}

// probeWithoutRights tries what must work without any capability.
func probeWithoutRights(dir string) []box.Step {
	nested := outcome(2, nestedNamespace(dir), "made without any capability, with mount, pid, ipc, uts and network namespaces", func(err error) string {
		return trial.AdviceNamespace(trial.StepUser, err, trial.Sysctl)
	})
	traced := outcome(3, parked.Traced(nil, func(int) error { return nil }), "a child was stopped before its first instruction", func(error) string {
		return "let processes trace their children: sysctl -w kernel.yama.ptrace_scope=1 (now " + trial.OrUnknown(trial.Sysctl("kernel.yama.ptrace_scope")) + "); in a container, a system-call filter that allows ptrace"
	})
	// Last: it cannot be taken back.
	allow := []bpf.Instruction{bpf.Stmt(bpf.Ret|bpf.K, uint32(linux.SECCOMP_RET_ALLOW))}
	filter := outcome(4, seccomp.SetFilter(allow), "installed on all threads", func(error) string {
		return "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER)"
	})
	return []box.Step{nested, traced, filter}
}

// outcome is the i-th of insideSteps.
func outcome(i int, err error, detail string, advice func(error) string) box.Step {
	if err != nil {
		return trial.Missing(insideSteps()[i], err, advice(err))
	}
	return trial.Works(insideSteps()[i], detail)
}

// nestedNamespace starts a process as gVisor starts a sentry.
func nestedNamespace(dir string) error {
	runtime.LockOSThread() // the parent-death signal is tied to the thread
	defer runtime.UnlockOSThread()
	self := []syscall.SysProcIDMap{{ContainerID: nobody, HostID: host.BoxUser, Size: 1}}
	cmd := &exec.Cmd{
		Path: host.SelfExe, Args: []string{argvProbe, probeNested, dir}, Env: []string{}, Dir: "/",
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
				syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
			UidMappings: self, GidMappings: self,
			Credential:  &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true},
			AmbientCaps: []uintptr{uintptr(linux.CAP_SYS_ADMIN), uintptr(linux.CAP_SYS_CHROOT), uintptr(linux.CAP_SETPCAP)},
			Setsid:      true,
			Pdeathsig:   syscall.SIGKILL,
		},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start a process in it: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("cannot mount in it: %w", err)
	}
	return nil
}
