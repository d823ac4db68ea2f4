// Command genseccomp compiles the sentry's seccomp filters ahead of time, as
// `go generate` of the gvisor tier. gVisor's own build does this with Bazel; a
// plain Go build would compile them at every start of a box, which takes
// longer than the rest of the start together.
package main

import (
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"
	"syscall"

	filterconfig "gvisor.dev/gvisor/runsc/boot/filter/config"

	"github.com/sunaba-dev/sunaba/internal/tier/gvisor/filter"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genseccomp FILE")
		os.Exit(2)
	}
	run := generate
	if os.Getpid() != 1 {
		run = asFirst
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "genseccomp:", err)
		os.Exit(1)
	}
}

// asFirst generates in a child that is PID 1 of a PID namespace, as the sentry
// is. One of gVisor's rules takes the number of the process that compiles it
// as a constant (systrap's, for rt_tgsigqueueinfo(2)), so that a filter made
// anywhere else would end the sentry for signalling itself.
func asFirst(path string) error {
	cmd := exec.Command("/proc/self/exe", path)
	cmd.Env = []string{}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot generate as PID 1 of a namespace: %w", err)
	}
	return nil
}

// wanted are the parts of a program's key that our sentry's options give.
func wanted(key string) bool {
	for _, part := range []string{"NVProxy=false", "TPUProxy=false", "RDMAProxy=false", "HostNetworkRawSockets=false", "HostNetwork=false", "HostFilesystem=false", "ProfileEnable=false", "ystrap"} {
		if !strings.Contains(key, part) {
			return false
		}
	}
	return true
}

func generate(path string) error {
	programs, err := filterconfig.PrecompiledPrograms()
	if err != nil {
		return fmt.Errorf("cannot compile filters: %w", err)
	}
	set := filter.Set{Gvisor: filter.GvisorVersion()}
	for _, p := range programs {
		if !wanted(p.Name) {
			fmt.Fprintln(os.Stderr, "-", p.Name)
			continue
		}
		f := filter.Program{Key: p.Name}
		for _, v := range p.Bytecode32 {
			f.Code = binary.LittleEndian.AppendUint32(f.Code, v)
		}
		for name, offsets := range p.VarOffsets {
			f.Vars = append(f.Vars, filter.Var{Name: name, Offsets: offsets})
		}
		sort.Slice(f.Vars, func(i, j int) bool { return f.Vars[i].Name < f.Vars[j].Name })
		set.Programs = append(set.Programs, f)
		fmt.Fprintln(os.Stderr, "+", p.Name, len(p.Bytecode32)/2, "instructions")
	}
	if len(set.Programs) == 0 {
		return fmt.Errorf("cannot find a filter for the sentry's options: gVisor's keys have changed")
	}
	sort.Slice(set.Programs, func(i, j int) bool { return set.Programs[i].Key < set.Programs[j].Key })
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write filters: %w", err)
	}
	if err := gob.NewEncoder(out).Encode(set); err != nil {
		return fmt.Errorf("cannot write filters: %w", err)
	}
	return out.Close()
}
