package gvisor

import (
	"strings"
	"unicode/utf8"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// watchAttributes hears of an attribute of a file, xattr(7), that gVisor leaves out of
// a copy of files without a word: one whose value is empty or no UTF-8, or whose name is
// none for such a record.
func (r *reporter) watchAttributes(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		ret, ctl, err := fn(t, sysno, args)
		if err == nil && !r.seen[limitAttribute].Load() && !isCopied(t, args) {
			r.hit(limitAttribute)
		}
		return ret, ctl, err
	}
}

// isCopied reads the arguments of setxattr(2) and its kin. A program that changes them
// meanwhile deceives its own box.
func isCopied(t *kernel.Task, args arch.SyscallArguments) bool {
	name, err := t.CopyInString(args[1].Pointer(), linux.XATTR_NAME_MAX+1)
	if err != nil {
		return false
	}
	if strings.HasPrefix(name, "system.") {
		return true // of an access list, which is copied as such
	}
	value := make([]byte, min(args[3].SizeT(), linux.XATTR_SIZE_MAX))
	if _, err := t.CopyInBytes(args[2].Pointer(), value); err != nil {
		return false
	}
	return len(value) > 0 && utf8.Valid(value) && utf8.ValidString(name) && !strings.Contains(name, "=")
}
