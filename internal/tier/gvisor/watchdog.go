package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
)

// sampleEvery is how often the watchdog looks. A program can go over its limit
// by what it touches in that time; that is why this is called weak.
const sampleEvery = 25 * time.Millisecond

// watch samples memory where no control group bounds it, from the host kernel's
// account: the pages that exist in the sentry's memory file, which are the guest's,
// and what the sentry holds on the guest's behalf, such as attributes, links and what
// waits in pipes. It calls hit once, when over says that they are too much.
func (r *runner) watch(over func(guest, sentry int64) bool, hit func()) error {
	sentry := r.c.SandboxPid()
	file, err := guestMemory(sentry)
	if err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for range tick.C {
			used, err := allocatedPath(file)
			if err != nil {
				return // the sentry has gone
			}
			heap, err := privateMemory(sentry)
			if err != nil {
				return
			}
			if over(used, heap) {
				hit()
				return
			}
		}
	}()
	return nil
}

// watchRun tells of a box for one run when its guest has more than the limit, or both
// have more than a control group would allow.
func (r *runner) watchRun(limit int64) error {
	return r.watch(func(guest, sentry int64) bool { return guest > limit || guest+sentry > limit+memoryOverhead }, func() {
		r.Event("limit", wire.Limit{Name: "memory", Source: "watchdog"})
	})
}

// watchLasting ends a box that lasts when both have more than a group would allow:
// what the guest's kernel can bound by itself, it does.
func (r *runner) watchLasting(limit int64) error {
	return r.watch(func(guest, sentry int64) bool { return guest+sentry > limit+lastingOverhead }, func() {
		r.Touched(wire.Limit{Name: "memory", Source: "watchdog"})
		r.EndBecause("the guest and its kernel used more memory than its limit allows")
	})
}

// guestMemory finds the file that holds the guest's memory among the sentry's
// descriptors, by the name that gVisor gave it (memfd_create(2)).
func guestMemory(pid int) (string, error) {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return "", err
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "/memfd:runsc-memory") {
			return fd, nil
		}
	}
	return "", fmt.Errorf("cannot watch memory: the sentry's memory file is not among its %d descriptors", len(fds))
}

func allocatedPath(path string) (int64, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}

// privateMemory returns the resident bytes of a process that are in no file and
// not shared: second and third number of /proc/PID/statm, proc_pid_statm(5).
func privateMemory(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident, shared int64
	if _, err := fmt.Sscan(string(b), &size, &resident, &shared); err != nil {
		return 0, fmt.Errorf("cannot read memory of process %d: %w", pid, err)
	}
	return max(resident-shared, 0) * int64(os.Getpagesize()), nil
}
