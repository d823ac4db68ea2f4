package gvisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/fsgofer/extension"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// goferHook is asked for extra seccomp rules at the one moment that matters to
// us: after the gofer has changed its root, which is the last thing it needs a
// capability for, and before its filter closes. It adds no rule; it installs a
// filter of our own and drops every capability. The gofer then reaches exactly
// what the box's host user may reach below the folders that were mounted for it.
type goferHook struct{}

func (goferHook) Name() string { return "sunaba" }

func (goferHook) TryHandleMount(*specs.Spec, *specs.Mount, string, bool) (lisafs.ConnectionImpl, lisafs.ConnectionOpts, error) {
	return nil, lisafs.ConnectionOpts{}, nil
}

func (goferHook) SeccompRules() seccomp.SyscallRules {
	if err := ownFilter(); err != nil {
		fmt.Fprintln(os.Stderr, "gofer:", err)
		os.Exit(1)
	}
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

// ownFilter has the host's kernel refuse setuid and setgid bits on whatever the
// gofer makes or changes. What a program makes in a writable mount belongs to
// the mount's owner: with such a bit it would be a program of that owner, for
// anybody on the host to start.
//
// That also holds for what guest root makes. The gofer, which has one user,
// would be told to give it to user 0, could not, and nothing would be made: so
// this call does nothing and succeeds, as on a file server that squashes root.
func ownFilter() error {
	refuse := func(arg int) seccomp.Or {
		var bits seccomp.Or
		for _, bit := range []uintptr{syscall.S_ISUID, syscall.S_ISGID} {
			var args seccomp.PerArg
			args[arg] = seccomp.MaskedEqual(bit, bit)
			bits = append(bits, args)
		}
		return bits
	}
	program := seccomp.Program{
		RuleSets: []seccomp.RuleSet{{
			Rules: seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{
				syscall.SYS_FCHMOD:   refuse(1), // the number is that of the mode's argument
				syscall.SYS_FCHMODAT: refuse(2),
				syscall.SYS_MKNODAT:  refuse(2),
				syscall.SYS_OPENAT:   refuse(3),
			}),
			Action: seccomp.ReturnError.Code(uint16(syscall.EPERM)),
		}, {
			Rules: seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{
				syscall.SYS_FCHOWNAT: seccomp.PerArg{2: seccomp.EqualTo(0), 3: seccomp.EqualTo(0)}, // user, group
			}),
			Action: seccomp.ReturnError.Code(0),
		}},
		Options: seccomp.ProgramOptions{DefaultAction: seccomp.Allow, BadArchAction: seccomp.KillProcess},
	}
	instructions, _, err := program.Build()
	if err != nil {
		return fmt.Errorf("cannot build filter: %w", err)
	}
	if err := seccomp.SetFilter(instructions); err != nil {
		return fmt.Errorf("cannot install filter: %w", err)
	}
	return nil
}

func dropGoferCaps() { extension.Register(goferHook{}) }

// goferUser says who the gofer becomes in its user namespace. gVisor takes the
// user of the guest's first process, and says nothing if that is root: ours is
// nobody, or guest root in a box that lasts, who have no host user behind them,
// while host files are served as the ordinary user.
func goferUser(args []string) []string {
	var out []string
	for _, a := range args {
		if strings.HasPrefix(a, "--uid=") || strings.HasPrefix(a, "--gid=") {
			continue
		}
		if out = append(out, a); a == "gofer" { // the command; its flags follow
			id := strconv.Itoa(host.BoxUser)
			out = append(out, "--uid="+id, "--gid="+id)
		}
	}
	return out
}
