package gvisor

import (
	"fmt"
	"os"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/fsgofer/extension"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// goferHook is asked for extra seccomp rules at the one moment that matters to
// us: after the gofer has changed its root, which is the last thing it needs a
// capability for, and before its filter closes. It adds no rule; it drops
// every capability. The gofer then reaches exactly what the box's host user
// may reach below the folders that were mounted for it.
type goferHook struct{}

func (goferHook) Name() string { return "sunaba" }

func (goferHook) TryHandleMount(*specs.Spec, *specs.Mount, string, bool) (lisafs.ConnectionImpl, lisafs.ConnectionOpts, error) {
	return nil, lisafs.ConnectionOpts{}, nil
}

func (goferHook) SeccompRules() seccomp.SyscallRules {
	if config.CgoEnabled {
		// Not all threads can be reached; the box reports it (see create.go).
		return seccomp.NewSyscallRules()
	}
	if err := host.DropAll(); err != nil {
		fmt.Fprintln(os.Stderr, "gofer:", err)
		os.Exit(1) // fail closed: a gofer with capabilities must not serve
	}
	return seccomp.NewSyscallRules()
}

func dropGoferCaps() { extension.Register(goferHook{}) }

// goferUser corrects who the gofer becomes in its user namespace. gVisor takes
// the user of the guest's first process; ours is nobody, who has no host user
// behind it, while host files are served as the ordinary user.
func goferUser(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		switch a {
		case fmt.Sprintf("--uid=%d", nobody):
			out[i] = fmt.Sprintf("--uid=%d", host.BoxUser)
		case fmt.Sprintf("--gid=%d", nobody):
			out[i] = fmt.Sprintf("--gid=%d", host.BoxUser)
		}
	}
	return out
}
