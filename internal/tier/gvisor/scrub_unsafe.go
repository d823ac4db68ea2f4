package gvisor

import (
	"os"
	"syscall"
	"unsafe"
)

// scrubEnvironment overwrites the strings of this process's environment where
// the kernel shows them in /proc/PID/environ, then forgets them. gVisor's
// re-execution passes a start time that way; nothing of ours reads it. args are
// the process's own, as the Go runtime found them.
//
// The kernel puts the environment's strings right behind the arguments'
// (execve(2); proc_pid_environ(5)). The runtime copies the former and refers to
// the latter in place, so the end of the last argument is where the first
// variable starts. Each is compared before it is overwritten: should either
// ever change, nothing is touched, and the posture test fails. (The C library
// of a build with cgo puts NUL bytes into a variable of its own.)
func scrubEnvironment(args []string) {
	if len(args) == 0 || len(args[len(args)-1]) == 0 {
		return // an empty string has no address
	}
	last := args[len(args)-1]
	p := unsafe.Pointer(unsafe.StringData(last))
	p = unsafe.Add(p, len(last)+1)
	for _, e := range syscall.Environ() {
		shown := unsafe.Slice((*byte)(p), len(e))
		for i := range shown {
			if shown[i] != e[i] && shown[i] != 0 {
				os.Clearenv()
				return
			}
		}
		clear(shown)
		p = unsafe.Add(p, len(e)+1)
	}
	os.Clearenv()
}
