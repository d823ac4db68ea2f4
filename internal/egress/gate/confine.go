package gate

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/confine"
	"github.com/sunaba-dev/sunaba/internal/host/seccomp"
)

// lowestAddress is read by a package of gVisor's as it initializes, in any program
// that it is linked into.
const lowestAddress = "/proc/sys/vm/mmap_min_addr"

// victim is oom_score_adj(5) of the gateway: what boxes let it hold is its own, so where
// the host has no memory left it is ended before what the host is for. A next one is
// started at once.
const victim = "500"

// yieldMemory says so to the kernel. It is no wall: where it cannot be said, all else holds.
func yieldMemory() {
	if f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString(victim)
		_ = f.Close()
	}
}

// become gives up all that a program needs no more which has started, and starts it.
func become(argv ...string) error {
	return confine.Exec(confine.Options{
		Domain: &confine.Domain{ReadOnly: []string{host.SelfExe, lowestAddress}}, Keep: []int{controlFD},
		Limits: map[int]uint64{unix.RLIMIT_FSIZE: ledger.Size}, // of the only files that it has
	}, host.SelfExe, argv, []string{}, nil)
}

// narrow gives up what was needed to start: files, programs, processes, and sockets of
// other kinds than those it dials with. It asks the kernel whether become was this
// process's first step, and what is in force now.
func narrow() error {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil || mode != unix.SECCOMP_MODE_FILTER {
		return fmt.Errorf("cannot be the gateway: seccomp mode is %d (%v)", mode, err)
	}
	if f, err := os.Open("/proc/self/status"); err == nil {
		f.Close()
		return errors.New("cannot be the gateway: it can open files (a kernel without Landlock?)")
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot be the gateway: cannot close its memory to others: %w", err)
	}
	p, err := seccomp.CompileGateway(runtime.GOARCH)
	if err == nil {
		err = seccomp.Install(p, seccomp.AllThreads)
	}
	if err != nil {
		return fmt.Errorf("cannot be the gateway: %w", err)
	}
	if _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("cannot be the gateway: a socket of another kind can be made (%v)", err)
	}
	if _, err := os.Open(host.SelfExe); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("cannot be the gateway: it can open its own program (%v)", err)
	}
	return nil
}
