package confine

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exec applies o and becomes the program; see [Apply] and execve(2). File is
// not looked up in PATH. It returns only on an error, after which the process
// must end.
//
// Tell, if not nil, is called when all is in force but the limits that bind the
// Go runtime (RLIMIT_AS, RLIMIT_DATA, RLIMIT_NPROC). An error from it is
// returned. What follows allocates no memory and starts no thread: with 64 MiB
// of address space a Go program cannot even allocate its own argument list.
func Exec(o Options, file string, argv, env []string, tell func(Applied) error) error {
	path, err := unix.BytePtrFromString(file)
	if err != nil {
		return fmt.Errorf("cannot execute %q: %w", file, err)
	}
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return fmt.Errorf("cannot execute %s: bad argument: %w", file, err)
	}
	vars, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return fmt.Errorf("cannot execute %s: bad environment: %w", file, err)
	}
	a, late, err := apply(o)
	if err != nil {
		return err
	}
	if tell != nil {
		if err := tell(a); err != nil {
			return err
		}
	}
	if err := late.set(); err != nil {
		return err
	}
	// Not Syscall: the scheduler would take this for a chance to start a
	// thread, and a thread that starts during execve can fail (golang/go#18146).
	_, _, e := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&vars[0])))
	runtime.KeepAlive(path)
	runtime.KeepAlive(args)
	runtime.KeepAlive(vars)
	return fmt.Errorf("cannot execute %s: %w", file, e)
}
