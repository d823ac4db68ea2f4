package confine

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/seccomp"
)

// The steps of [Probe], in order.
const (
	stepRights   = "dropped rights"
	stepKeyring  = "session keyring"
	stepLandlock = "Landlock"
	stepFilter   = "system-call filter"
)

// ProbeSteps lists them.
func ProbeSteps() []string {
	return []string{stepRights, stepKeyring, stepLandlock, stepFilter}
}

// Probe does to the calling process what is done to the first one of a box and
// to the thread that starts its programs (see [DropRights], [Thread]), and says
// of each part how it went. A weak step's detail is what [Applied] says of it.
// The process is of no other use afterwards.
func Probe(d Domain) []box.Step {
	runtime.LockOSThread()
	var a Applied
	err := DropRights()
	if err == nil {
		err = a.dropRights()
	}
	rights := step(stepRights, err, "no capability in any set, the bounding set included; secure bits locked")
	switch {
	case errors.Is(err, unix.ENOTSUP): // syscall.AllThreadsSyscall, with cgo
		rights.Advice = "build with make, or with CGO_ENABLED=0 go build ./cmd/sunaba"
	case len(a.Weak) > 0:
		rights.State, rights.Detail = box.Weak, a.Weak[0]
	}
	return []box.Step{rights, probeKeyring(), d.probeLandlock(), probeFilter()}
}

func step(name string, err error, detail string) box.Step {
	if err != nil {
		return box.Step{Name: name, State: box.Missing, Detail: err.Error()}
	}
	return box.Step{Name: name, State: box.Works, Detail: detail}
}

func probeKeyring() box.Step {
	_, err := newKeyring()
	s := step(stepKeyring, err, "a new one, empty")
	switch {
	case errors.Is(err, unix.EDQUOT):
		s.Advice = "this user has as many keys as it may: raise kernel.keys.maxkeys, or end sessions that hold some"
	case err != nil:
		s.Advice = "use a kernel with keyrings (CONFIG_KEYS); in a container, a system-call filter that allows keyctl"
	}
	return s
}

func (d Domain) probeLandlock() box.Step {
	var a Applied
	err := setNoNewPrivs()
	if err == nil {
		err = d.landlock(&a)
	}
	s := step(stepLandlock, err, fmt.Sprintf("version %d: files, abstract sockets and signals are kept to the box", a.Landlock.ABI))
	const advice = "use Linux 6.12 or later with landlock among CONFIG_LSM or lsm=; in a container, a system-call filter that allows landlock_create_ruleset, landlock_add_rule and landlock_restrict_self"
	switch {
	case err != nil:
		s.Advice = advice
	case len(a.Weak) > 0:
		s.State, s.Detail, s.Advice = box.Weak, a.Weak[0], advice
	}
	return s
}

func probeFilter() box.Step {
	p, err := seccomp.Compile(runtime.GOARCH)
	if err == nil {
		err = seccomp.Install(p, seccomp.CallingThread)
	}
	s := step(stepFilter, err, fmt.Sprintf("that of a box installed, %d instructions", len(p)))
	if err != nil {
		s.Advice = "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER); in a container, a system-call filter that allows seccomp and prctl"
	}
	return s
}
