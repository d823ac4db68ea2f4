package gvisor

import (
	"os"
	"syscall"
	"unsafe"
)

// scrubEnvironment overwrites the strings of this process's environment where
// the kernel shows them in /proc/PID/environ, then forgets them. gVisor's
// re-execution passes a start time that way; nothing of ours reads it.
func scrubEnvironment() {
	for _, e := range syscall.Environ() {
		if len(e) > 0 {
			clear(unsafe.Slice(unsafe.StringData(e), len(e)))
		}
	}
	os.Clearenv()
}
