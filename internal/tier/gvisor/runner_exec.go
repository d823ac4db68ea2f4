package gvisor

import (
	"encoding/json"
	"fmt"
	"os"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// exec starts a program in the running sandbox.
func (r *runner) exec(body json.RawMessage, files []*os.File) (any, error) {
	var e wire.Exec
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, err
	}
	if len(files) != 3 {
		return nil, fmt.Errorf("cannot start program: %d of 3 streams came", len(files))
	}
	if r.c == nil {
		return nil, fmt.Errorf("cannot start program: the sandbox is not running")
	}
	caps, err := guestCaps(e.Caps)
	if err != nil {
		return nil, err
	}
	args := &control.ExecArgs{
		Filename: e.File, Argv: e.Argv, Envv: e.Env, WorkingDirectory: e.Dir,
		KUID: auth.KUID(host.BoxUser), KGID: auth.KGID(host.BoxUser),
		Capabilities:    caps,
		NoNewPrivileges: true,
		StdioIsPty:      e.TTY,
	}
	if e.Root {
		args.KUID, args.KGID = 0, 0
	}
	if e.TTY {
		if err := r.takeTerminal(files[0]); err != nil {
			return nil, err
		}
	}
	pid, err := r.execute(args, "a stream of a program", map[int]*os.File{0: files[0], 1: files[1], 2: files[2]})
	if err != nil {
		return nil, err
	}
	if e.TTY {
		r.onTerminal.Store(pid)
	}
	return wire.Started{Pid: pid}, nil
}

// guestCaps turns names into a guest task's capabilities. They mean something
// inside the guest kernel only.
func guestCaps(names []string) (*auth.TaskCapabilities, error) {
	known := map[string]linux.Capability{
		"CAP_CHOWN": linux.CAP_CHOWN, "CAP_DAC_OVERRIDE": linux.CAP_DAC_OVERRIDE, "CAP_FOWNER": linux.CAP_FOWNER,
		"CAP_FSETID": linux.CAP_FSETID, "CAP_KILL": linux.CAP_KILL, "CAP_SETGID": linux.CAP_SETGID,
		"CAP_SETUID": linux.CAP_SETUID, "CAP_NET_BIND_SERVICE": linux.CAP_NET_BIND_SERVICE, "CAP_SYS_CHROOT": linux.CAP_SYS_CHROOT,
		"CAP_DAC_READ_SEARCH": linux.CAP_DAC_READ_SEARCH, "CAP_SYS_RESOURCE": linux.CAP_SYS_RESOURCE,
	}
	var list []linux.Capability
	for _, n := range names {
		c, ok := known[n]
		if !ok {
			return nil, fmt.Errorf("cannot grant %s: not one of the guest capabilities", n)
		}
		list = append(list, c)
	}
	set := auth.CapabilitySetOfMany(list)
	return &auth.TaskCapabilities{PermittedCaps: set, EffectiveCaps: set, BoundingCaps: set}, nil
}
