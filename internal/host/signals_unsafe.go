package host

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct, not the C library's: asm/signal.h, with the
// set of 64 signals that rt_sigaction(2) wants. It is the same on amd64 and
// arm64.
type sigaction struct{ handler, flags, restorer, mask uint64 }

const (
	sigDefault, sigIgnore = 0, 1 // SIG_DFL, SIG_IGN
	lastSignal            = 64
)

// DefaultSignals gives every signal that this process ignores its default. What
// is ignored is ignored by all that it executes, too (execve(2)): what nohup(1),
// a shell's trap or, for 32 and 33, the C library's posix_spawn(3) has set. A
// handler is not passed on and is left alone. It is for a process that is not
// ended by signals, such as the first one of a PID namespace.
func DefaultSignals() error {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var now sigaction
		if err := rtSigaction(sig, nil, &now); err != nil {
			return err
		}
		if now.handler != sigIgnore {
			continue
		}
		if err := rtSigaction(sig, &sigaction{handler: sigDefault}, nil); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}

func rtSigaction(sig uintptr, set, was *sigaction) error {
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(was)), 8, 0, 0)
	if e != 0 {
		return fmt.Errorf("cannot ask for or set what signal %d does: %w", sig, e)
	}
	return nil
}
