package gvisor

import (
	"syscall"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	slinux "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// ownerMode is what the gofer needs to open any file that it has just made.
const ownerMode = syscall.S_IRUSR | syscall.S_IWUSR

// makesReadOnly makes open(2) and its kin able to create a file for writing
// whose mode forbids that, as git, cp and tar do: "the mode applies only to
// future accesses of the newly created file". The gofer first makes the file
// and then opens it, for which gVisor's own has CAP_DAC_OVERRIDE; ours has no
// capability. So what was refused is made with a mode that permits it, and gets
// the mode that was wanted afterwards. A file that was there is left alone.
func makesReadOnly(name string, fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		ret, ctl, err := fn(t, sysno, args)
		if !isErr(err, linuxerr.EACCES) {
			return ret, ctl, err
		}
		a, ok := openatArguments(name, args)
		flags, mode := a[2].Uint(), a[3].ModeT()
		if !ok || flags&linux.O_CREAT == 0 || mode&ownerMode == ownerMode {
			return ret, ctl, err
		}
		a[2].Value = uintptr(flags | linux.O_EXCL)
		a[3].Value = uintptr(mode | ownerMode)
		fd, ctl, againErr := slinux.Openat(t, sysno, a)
		if againErr != nil {
			return ret, ctl, err
		}
		file := t.GetFile(int32(fd))
		if file == nil {
			return fd, ctl, nil // another thread closed it
		}
		defer file.DecRef(t)
		wanted := mode & (0o777 | linux.S_ISVTX) &^ t.FSContext().Umask()
		err = file.SetStat(t, vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_MODE, Mode: uint16(wanted)}})
		if err != nil {
			if f := t.FDTable().Remove(t, int32(fd)); f != nil {
				f.DecRef(t)
			}
			return 0, nil, err
		}
		return fd, ctl, nil
	}
}

// openatArguments turns the arguments of open(2) or creat(2) into those of
// openat(2).
func openatArguments(name string, args arch.SyscallArguments) (arch.SyscallArguments, bool) {
	here := int32(linux.AT_FDCWD)
	at := arch.SyscallArgument{Value: uintptr(here)}
	switch name {
	case "openat":
		return args, true
	case "open":
		return arch.SyscallArguments{at, args[0], args[1], args[2]}, true
	case "creat":
		flags := arch.SyscallArgument{Value: linux.O_WRONLY | linux.O_CREAT | linux.O_TRUNC}
		return arch.SyscallArguments{at, args[0], flags, args[1]}, true
	}
	return args, false
}
