package probe

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
)

// Program executes the child's file as the box's host user, what names it.
func (p *Probe) Program(ctx context.Context, what string) Step {
	uid := p.Child.HostUID
	s := p.Child
	s.Args = []string{trial.Argv, trial.Nothing}
	if !mapped(uid) {
		return Needed(trial.Missing(StepProgram, fmt.Errorf("cannot be user %d: root here is root of a user namespace that does not have user %d", uid, uid),
			"run sunaba as an ordinary user of this container"))
	}
	if _, err := s.Try(ctx, host.NamespaceNone); err != nil {
		advice := "make the file of sunaba executable by everybody (chmod a+rx), on a file system that is not mounted noexec"
		if s.Exe != nil {
			advice = adviceNoExec()
		}
		return Needed(trial.Missing(StepProgram, fmt.Errorf("cannot execute %s as user %d: %w", what, uid, err), advice))
	}
	if s.Exe == nil && dynamic() {
		return Needed(trial.Missing(StepProgram, errors.New("it needs a dynamic loader, which a box's empty root does not have: it was built with cgo"),
			"build with make, or with CGO_ENABLED=0 go build ./cmd/sunaba"))
	}
	return Needed(trial.Works(StepProgram, fmt.Sprintf("executed as user %d", uid)))
}

// mapped reports whether a user exists in this process's user namespace; see
// user_namespaces(7). If that cannot be read, trying will tell.
func mapped(uid int) bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, count int
		if n, err := fmt.Sscan(line, &inside, &outside, &count); n == 3 && err == nil && uid >= inside && uid-inside < count {
			return true
		}
	}
	return false
}

// dynamic reports whether this program names a loader; see elf(5).
func dynamic() bool {
	f, err := elf.Open(host.SelfExe)
	if err != nil {
		return false
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// Namespaces makes each namespace of a box by itself, in a user namespace, and
// all at once. With ownTime a box has a time namespace, too.
func (p *Probe) Namespaces(ctx context.Context, ownTime bool) {
	if !p.Works(StepProgram) {
		p.Add(NotTried(trial.StepUser, StepProgram))
	} else {
		p.Add(p.try(ctx, trial.StepUser, host.NamespaceNone))
	}
	for _, n := range []struct {
		name string
		ns   host.Namespace
	}{
		{"mount namespace", host.NamespaceMount},
		{"pid namespace", host.NamespacePID},
		{"ipc namespace", host.NamespaceIPC},
		{"uts namespace", host.NamespaceUTS},
		{"cgroup namespace", host.NamespaceCgroup},
		{"network namespace", host.NamespaceNet},
		{trial.StepTime, host.NamespaceNone},
		{StepAll, host.NamespaceBox},
	} {
		switch {
		case n.name == trial.StepTime && !ownTime:
		case !p.Works(trial.StepUser):
			p.Add(NotTried(n.name, trial.StepUser))
		case ownTime && (n.name == trial.StepTime || n.name == StepAll):
			p.Add(p.withTime(ctx, n.name, n.ns))
		default:
			p.Add(p.try(ctx, n.name, n.ns))
		}
	}
}

// try runs a child in a user namespace like a box's and in further ones.
func (p *Probe) try(ctx context.Context, name string, ns host.Namespace) Step {
	s := p.Child
	s.Args = []string{trial.Argv, trial.Nothing}
	if _, err := s.Try(ctx, ns|host.NamespaceUser); err != nil {
		return refused(name, err)
	}
	detail := "made"
	if ns == host.NamespaceNone {
		detail = fmt.Sprintf("made; user %d outside is user %d inside", s.HostUID, host.BoxUser)
	}
	return Needed(trial.Works(name, detail))
}

// withTime also has the child make a time namespace, as a box's first process
// does for its programs: clone(2) has no flag for it.
func (p *Probe) withTime(ctx context.Context, name string, ns host.Namespace) Step {
	s := p.Child
	s.Args = []string{trial.Argv, trial.Time, name}
	said, err := s.Try(ctx, ns|host.NamespaceUser)
	if err != nil {
		return refused(name, err)
	}
	return heard(said, nil, []string{name})[0]
}

func refused(name string, err error) Step {
	return Needed(trial.Missing(name, fmt.Errorf("cannot start a process in it: %w", err), trial.AdviceNamespace(name, err, trial.Sysctl)))
}

// Devices looks for the null device, which every started process gets, and for
// folders of the host that the tier opens by name.
func Devices(folders ...string) Step {
	detail := os.DevNull + " is the null device"
	st, err := os.Stat(os.DevNull)
	if err == nil {
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok || st.Mode().Type() != os.ModeDevice|os.ModeCharDevice || sys.Rdev != 1<<8|3 {
			err = fmt.Errorf("%s is not the null device", os.DevNull)
		}
	}
	if err != nil {
		return Needed(trial.Missing(StepDevices, err, "make /dev/null (mknod -m 666 /dev/null c 1 3)"))
	}
	for _, f := range folders {
		if st, err := os.Stat(f); err != nil || !st.IsDir() {
			return Needed(trial.Missing(StepDevices, errors.New(f+" is not a folder"),
				"make the folder "+f+"; a box's processes mount their empty root there, in a namespace of their own"))
		}
		detail += ", " + f + " is a folder"
	}
	return Needed(trial.Works(StepDevices, detail))
}
