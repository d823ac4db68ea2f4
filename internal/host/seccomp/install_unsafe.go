package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Scope says whom a filter binds.
type Scope int

const (
	// CallingThread binds the thread that calls, which must be locked, and what
	// it starts or becomes. It is enough right before execve, which ends every
	// other thread.
	CallingThread Scope = iota
	// AllThreads binds the whole process, by SECCOMP_FILTER_FLAG_TSYNC. It
	// fails if a thread has a filter that the calling one has not.
	AllThreads
)

// Install puts a filter in force, for good: it outlives execve and is inherited
// by every child. The calling thread must have no_new_privs set, whatever
// capabilities it has. Filters add up; the strictest answer counts. When
// Install returns nil, the kernel was asked and says that the calling thread
// is filtered.
//
// See seccomp(2).
func Install(p Program, s Scope) error {
	if len(p) == 0 || len(p) > unix.BPF_MAXINSNS {
		return fmt.Errorf("cannot install filter: it has %d instructions, not 1 to %d", len(p), unix.BPF_MAXINSNS)
	}
	if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || v != 1 {
		return fmt.Errorf("cannot install filter: no_new_privs is not set (%d, %v)", v, err)
	}
	fprog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	var flags uintptr
	if s == AllThreads {
		flags = unix.SECCOMP_FILTER_FLAG_TSYNC
	}
	tid, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(p)
	if e != 0 {
		return fmt.Errorf("cannot install filter: %w", e)
	}
	if tid != 0 {
		return fmt.Errorf("cannot install filter: thread %d has another one", tid)
	}
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil || mode != unix.SECCOMP_MODE_FILTER {
		return fmt.Errorf("cannot install filter: seccomp mode is %d (%v) afterwards", mode, err)
	}
	return nil
}
