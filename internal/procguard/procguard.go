// Package procguard does what has to be done before gVisor's packages are
// initialized, which takes milliseconds and can end in a stack trace.
//
// One of them reads /proc/sys/vm/mmap_min_addr while packages are initialized,
// and panics if it cannot: no main function gets a say. A /proc that was mounted
// with subset=pid, or none at all, is an ordinary fault of a container, and the
// person in front of it should read what to do.
//
// And a sentry starts this program once more, only to have /proc unmounted when
// the sentry no longer may: two system calls, for which nothing of gVisor is
// needed.
//
// Packages without further dependencies are initialized in the order of their
// import paths (the Go specification, "Program initialization"), and this one's
// path comes first. A test starts the program without such a /proc; if the order
// ever changes, it fails.
package procguard

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
)

// exitUnusable is the exit code for a host that cannot run boxes.
const exitUnusable = 242

const needed = "/proc/sys/vm/mmap_min_addr"

var _ = check()

func check() bool {
	// Nobody looks at the profile of what was allocated, for which each of a box's
	// processes would keep a table.
	runtime.MemProfileRate = 0
	if slices.Equal(os.Args, []string{"/proc/self/exe", "umount", "--sync-fd=3", "/proc"}) {
		os.Exit(umount("/proc"))
	}
	_, err := os.Stat(needed)
	if err != nil {
		fmt.Fprintf(os.Stderr, "sunaba: cannot start on this host: %v\nsunaba: hint: mount a whole /proc, without subset=pid: mount -t proc proc /proc\n", err)
		os.Exit(exitUnusable)
	}
	return true
}

// umount does what gVisor's command of that name does: it waits for a byte on
// descriptor 3 and then detaches the folder. A sentry whose /proc is still there
// does not go on.
func umount(dir string) int {
	sync := os.NewFile(3, "sync")
	if n, err := sync.Read(make([]byte, 1)); n != 1 {
		fmt.Fprintln(os.Stderr, "cannot wait for the sentry:", err)
		return 1
	}
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		fmt.Fprintf(os.Stderr, "cannot unmount %s: %v\n", dir, err)
		return 1
	}
	return 0
}
