// Package trial is what a tried process does: a child in namespaces like a
// box's, that tries on this host, once, what a box's first process will need,
// and says how each went. The other half, which starts such children and sums
// up, is in the room of the tiers (tier/probe).
//
// It is apart from that half because it is linked into the agent, which runs it
// as the program and under the user that a box of the process tier will have.
package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/confine"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/host/jail"
)

// Argv is the name of a tried process, see [Main]; its first argument is one of
// the following.
const (
	Argv    = "sunaba-probe"
	Nothing = "nothing" // end at once: that it ran is the answer
	Time    = "time"    // STEP: make a time namespace, too, and say it as JSON
	Cell    = "cell"    // DEVICES DIR USR: try what a cell does, say it as JSON
	Link    = "link"    // DEVICES: make a second network interface, say it as JSON
)

// How a tried process gets its mount of /usr: as descriptor 3, made by root; by
// itself; or not, for the reason that is given instead of these words.
const (
	UsrPassed = "passed"
	UsrOwn    = "own"
)

// Names of steps.
const (
	StepUser    = "user namespace"
	StepTime    = "time namespace"
	StepProc    = "fresh /proc"
	StepFolders = "host folders"
)

// Where a tried cell's devices come from: a mount that root has made, the last
// descriptor, or the host's.
const (
	DevicesPassed = "passed"
	DevicesHost   = "host"
)

// CellSteps lists the steps of [Cell], in order.
func CellSteps() []string {
	return append(append([]string{StepProc, StepFolders}, jail.ProbeSteps()...), confine.ProbeSteps()...)
}

// Main is the whole life of a tried process. It returns its exit code, and says
// its steps on standard output, as JSON.
func Main(args []string) int {
	var steps []box.Step
	switch {
	case len(args) == 2 && args[1] == Nothing:
		return 0
	case len(args) == 3 && args[1] == Time:
		steps = []box.Step{timeNamespace(args[2])}
	case len(args) == 5 && args[1] == Cell:
		steps = cell(args[2], args[3], args[4])
	case len(args) == 3 && args[1] == Link:
		steps = []box.Step{link(args[2])}
	default:
		return 2
	}
	if err := json.NewEncoder(os.Stdout).Encode(steps); err != nil {
		return 1
	}
	return 0
}

// timeNamespace does what clone(2) has no flag for: it makes a time namespace,
// which only children enter, when they execute something.
func timeNamespace(name string) box.Step {
	runtime.LockOSThread() // kept by thread
	if err := unix.Unshare(unix.CLONE_NEWTIME); err != nil {
		return Missing(name, fmt.Errorf("cannot make a time namespace: %w", err), AdviceNamespace(StepTime, err, Sysctl))
	}
	child := &exec.Cmd{Path: host.SelfExe, Args: []string{Argv, Nothing}, Env: []string{}, Dir: "/"}
	if err := child.Run(); err != nil {
		return Missing(name, fmt.Errorf("cannot start a program in a time namespace: %w", err), "use Linux 6.1 or later")
	}
	return Works(name, "made")
}

// cell does what a cell does to set up a box, in dir, over which it mounts.
func cell(from, dir, usr string) []box.Step {
	var devices *os.File
	if from == DevicesPassed {
		fd := uintptr(3)
		if usr == UsrPassed {
			fd++
		}
		devices = os.NewFile(fd, "devices")
	}
	steps := []box.Step{FreshProc(), HostFolders(dir, usr)}
	steps = append(steps, jail.Probe(dir, devices, 1<<20, 64, AdviceMount)...)
	return append(steps, confine.Probe(confine.Domain{ReadOnly: []string{"/"}, Devices: []string{"/dev"}})...)
}

// FreshProc mounts a /proc of the calling process's PID namespace, whose first
// process it is, in a mount namespace of its own.
func FreshProc() box.Step {
	err := host.PrivateMounts()
	if err == nil {
		err = host.MountProc()
	}
	if err != nil {
		return Missing(StepProc, err, AdviceMount(err))
	}
	return Works(StepProc, "mounted in a pid namespace of its own")
}

// HostFolders attaches a mount of /usr below dir, in this process's namespace,
// and makes sure that nothing can be written through it.
func HostFolders(dir, usr string) box.Step {
	if err := mountUsr(dir, usr); err != nil {
		advice := AdviceMount(err)
		switch {
		case usr != UsrPassed && usr != UsrOwn:
			advice = "root needs CAP_SYS_ADMIN on the host, and Linux 5.12 or later, to show folders of the host (docker: --privileged); or run sunaba as an ordinary user, who needs neither"
		case advice == "":
			advice = "use Linux 5.12 or later (open_tree, mount_setattr); in a container, a system-call filter that allows them"
		}
		return Missing(StepFolders, err, advice)
	}
	return Works(StepFolders, "/usr mounted read-only by descriptor")
}

func mountUsr(dir, usr string) error {
	var tree *os.File
	var err error
	switch usr {
	case UsrPassed:
		tree = os.NewFile(3, "usr")
	case UsrOwn:
		tree, err = CloneUsr()
	default:
		err = errors.New(usr)
	}
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := host.MountTmpfs(dir); err != nil {
		return err
	}
	point := filepath.Join(dir, "usr")
	if err := os.Mkdir(point, 0o700); err != nil {
		return fmt.Errorf("cannot make mount point: %w", err)
	}
	if err := hostfs.MoveMount(tree, point); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(point, &st); err != nil || st.Flags&unix.ST_RDONLY == 0 {
		return fmt.Errorf("cannot make /usr read-only: the kernel says flags %#x (%v)", st.Flags, err)
	}
	return nil
}

// CloneUsr makes the mount that every box with the host image has.
func CloneUsr() (*os.File, error) {
	f, _, err := hostfs.OpenMountSource("/usr", nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return hostfs.CloneMount(f, hostfs.MountAttr{ReadOnly: true, Recursive: !host.IsRoot()})
}

// Works is a step that was done.
func Works(name, detail string) box.Step {
	return box.Step{Name: name, State: box.Works, Detail: detail}
}

// Missing is a step that failed.
func Missing(name string, err error, advice string) box.Step {
	return box.Step{Name: name, State: box.Missing, Detail: err.Error(), Advice: advice}
}
