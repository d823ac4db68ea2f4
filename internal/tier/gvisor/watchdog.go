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

// watch samples the guest's memory where no control group bounds it, from the
// host kernel's account: the pages that exist in the sentry's memory file. It
// reports once and returns.
func (r *runner) watch(limit int64) error {
	file, err := guestMemory(r.c.SandboxPid())
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
			if used > limit {
				r.Event("limit", wire.Limit{Name: "memory", Source: "watchdog"})
				return
			}
		}
	}()
	return nil
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
