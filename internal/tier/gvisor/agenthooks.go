package gvisor

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// hearAgent passes on the beginning of what the guest's first process, the agent,
// writes to its standard error, which is nobody's otherwise: the Go runtime says there
// why it ends the process. Programs of the box have no part in it. Only bytes of a
// text are passed on, so that none is a limitKind.
func (r *reporter) hearAgent(write kernel.SyscallFn) kernel.SyscallFn {
	var heard atomic.Int64
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Int() == 2 && t.ThreadGroup() == t.Kernel().GlobalInit() {
			text := make([]byte, min(args[2].SizeT(), panicBytes))
			n, _ := t.CopyInBytes(args[1].Pointer(), text)
			if heard.Add(int64(n)) <= panicBytes {
				for i, c := range text[:n] {
					if c <= byte(limitAttribute) {
						text[i] = '?'
					}
				}
				_, _ = r.pipe.Write(text[:n]) // else it is not told
			}
		}
		return write(t, sysno, args)
	}
}
