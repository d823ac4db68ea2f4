package gvisor

import (
	"os"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	slinux "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// A limitKind is one byte on the pipe between the sentry and the runner: the
// guest kernel refused something because of that limit.
type limitKind byte

const (
	limitProcesses limitKind = 'p' // clone and its kin said EAGAIN
	limitOpenFiles limitKind = 'o' // a call that makes a descriptor said EMFILE
	limitDisk      limitKind = 'd' // a call that stores bytes said ENOSPC
	limitFiles     limitKind = 'f' // a call that makes a name said ENOSPC
)

// reporter writes each kind once to a pipe. It runs in the sentry, under its
// seccomp filter, on the guest's system call path: an atomic load when nothing
// is wrong, one write(2) in a box's life for each kind.
type reporter struct {
	pipe *os.File
	seen [256]atomic.Bool
}

func (r *reporter) hit(k limitKind) {
	if r.seen[k].Load() || r.seen[k].Swap(true) {
		return
	}
	_, _ = r.pipe.Write([]byte{byte(k)})
}

// watched says which refusal of which system call tells of which limit.
// Numbers differ by architecture, names do not.
func watched() map[string]map[error]limitKind {
	agains := map[error]limitKind{linuxerr.EAGAIN: limitProcesses}
	descriptors := map[error]limitKind{linuxerr.EMFILE: limitOpenFiles}
	opens := map[error]limitKind{linuxerr.EMFILE: limitOpenFiles, linuxerr.ENOSPC: limitFiles}
	names := map[error]limitKind{linuxerr.ENOSPC: limitFiles}
	bytes := map[error]limitKind{linuxerr.ENOSPC: limitDisk}
	m := make(map[string]map[error]limitKind)
	for kind, calls := range map[*map[error]limitKind][]string{
		&agains:      {"clone", "clone3", "fork", "vfork"},
		&descriptors: {"dup", "dup3", "fcntl", "pipe", "pipe2", "socket", "socketpair", "accept", "accept4", "epoll_create", "epoll_create1", "eventfd", "eventfd2", "memfd_create", "timerfd_create", "inotify_init", "inotify_init1", "signalfd4", "pidfd_open"},
		&opens:       {"open", "openat", "openat2", "creat"},
		&names:       {"mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat", "rename", "renameat", "renameat2", "bind"},
		&bytes:       {"write", "writev", "pwrite64", "pwritev", "pwritev2", "fallocate", "sendfile", "splice", "copy_file_range", "truncate", "ftruncate"},
	} {
		for _, c := range calls {
			m[c] = *kind
		}
	}
	return m
}

// reportLimits wraps the watched system calls of the guest kernel's tables. It
// must be called before the kernel is built from them.
func reportLimits(pipe *os.File) {
	r := &reporter{pipe: pipe}
	calls := watched()
	for _, table := range []*kernel.SyscallTable{slinux.AMD64, slinux.ARM64} {
		for no, sc := range table.Table {
			kinds, ok := calls[sc.Name]
			if !ok {
				continue
			}
			fn := sc.Fn
			sc.Fn = func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				ret, ctl, err := fn(t, sysno, args)
				if err != nil {
					if k, ok := kinds[err]; ok {
						r.hit(k)
					}
				}
				return ret, ctl, err
			}
			table.Table[no] = sc
		}
	}
}
