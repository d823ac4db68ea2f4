// Package procguard ends the program with a sentence where it would otherwise
// end with a stack trace.
//
// One of gVisor's packages reads /proc/sys/vm/mmap_min_addr while packages are
// initialized, and panics if it cannot: no main function gets a say. A /proc
// that was mounted with subset=pid, or none at all, is an ordinary fault of a
// container, and the person in front of it should read what to do. Packages
// without further dependencies are initialized in the order of their import
// paths (the Go specification, "Program initialization"), and this one's path
// comes first. A test starts the program without such a /proc; if the order
// ever changes, it fails.
package procguard

import (
	"fmt"
	"os"
)

// exitUnusable is the exit code for a host that cannot run boxes.
const exitUnusable = 242

const needed = "/proc/sys/vm/mmap_min_addr"

var _ = check()

func check() bool {
	_, err := os.Stat(needed)
	if err != nil {
		fmt.Fprintf(os.Stderr, "sunaba: cannot start on this host: %v\nsunaba: hint: mount a whole /proc, without subset=pid: mount -t proc proc /proc\n", err)
		os.Exit(exitUnusable)
	}
	return true
}
