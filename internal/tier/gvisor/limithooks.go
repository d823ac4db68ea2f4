package gvisor

import (
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/limits"
	slinux "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// A limitKind is one byte on the pipe between the sentry and the runner: the
// guest kernel refused something because of that limit. None is a byte of a text:
// what the sentry or the agent says when it panics comes on the same pipe.
type limitKind byte

const (
	limitProcesses limitKind = 1 // clone and its kin said EAGAIN
	limitOpenFiles limitKind = 2 // a call that makes a descriptor said EMFILE
	limitDisk      limitKind = 3 // the writable layer had no space left
	limitFiles     limitKind = 4 // the writable layer had no inode left
	limitMemory    limitKind = 5 // a program was ended for want of memory; told each time
	limitAttribute limitKind = 6 // no limit: a file has what a copy of files cannot keep
)

// name is the limit's name in the configuration; empty for a byte that the guest
// kernel has no business writing.
func (k limitKind) name() string {
	switch k {
	case limitProcesses:
		return "max_processes"
	case limitOpenFiles:
		return "max_open_files"
	case limitDisk:
		return "disk"
	case limitFiles:
		return "max_files"
	case limitMemory:
		return "memory"
	}
	return ""
}

// reporter writes each kind once to a pipe. It runs in the sentry, under its
// seccomp filter, on the guest's system call path: one comparison when nothing
// is wrong, one write(2) in a box's life for each kind.
type reporter struct {
	pipe *os.File
	most uint64 // tasks of all programs; 0 = see boxFull
	seen [256]atomic.Bool

	memory  *memoryKeeper
	met     atomic.Pointer[kernel.Kernel] // whose boot id is new; see meet
	meeting sync.Mutex

	making sync.Mutex // held while a task is made, so that boxFull is exact
}

func (r *reporter) hit(k limitKind) {
	if r.seen[k].Load() || r.seen[k].Swap(true) {
		return
	}
	_, _ = r.pipe.Write([]byte{byte(k)})
}

// refusals reads the outcome of a watched call.
type refusals func(*reporter, *kernel.Task, arch.SyscallArguments, error)

// isErr compares with an error in either of the two forms that gVisor uses.
func isErr(err error, want *errors.Error) bool { return linuxerr.Equals(want, err) }

func noTask(r *reporter, _ *kernel.Task, _ arch.SyscallArguments, err error) {
	if isErr(err, linuxerr.EAGAIN) {
		r.hit(limitProcesses)
	}
}

func noDescriptor(r *reporter, _ *kernel.Task, _ arch.SyscallArguments, err error) {
	if isErr(err, linuxerr.EMFILE) {
		r.hit(limitOpenFiles)
	}
}

// noName is for calls that make a name. Only the layer knows what it ran out
// of: an inode, the page of a long symbolic link, or space for the copy of a
// file of the image that is about to be changed.
func noName(r *reporter, t *kernel.Task, _ arch.SyscallArguments, err error) {
	if !isErr(err, linuxerr.ENOSPC) {
		return
	}
	switch st, err := layerSpace(t); {
	case err != nil: // no account, no report
	case st.FilesFree == 0:
		r.hit(limitFiles)
	case st.BlocksFree == 0:
		r.hit(limitDisk)
	}
}

func noNameOrDescriptor(r *reporter, t *kernel.Task, args arch.SyscallArguments, err error) {
	noDescriptor(r, t, args, err)
	noName(r, t, args, err)
}

// noBytes is for calls that store bytes in the open file that argument fd
// names. /dev/shm and folders of the host have limits of their own.
func noBytes(fd int) refusals {
	return func(r *reporter, t *kernel.Task, args arch.SyscallArguments, err error) {
		if !isErr(err, linuxerr.ENOSPC) {
			return
		}
		f := t.GetFile(args[fd].Int())
		if f == nil {
			return
		}
		defer f.DecRef(t)
		if f.Mount().Filesystem().FilesystemType().Name() == overlay.Name {
			r.hit(limitDisk)
		}
	}
}

// layerSpace asks the writable layer what is left. It starts at the root of the
// guest's first process, which the program cannot change.
func layerSpace(t *kernel.Task) (linux.Statfs, error) {
	first := t.Kernel().GlobalInit().Leader()
	root := first.FSContext().RootDirectory()
	defer root.DecRef(t)
	return t.Kernel().VFS().StatFSAt(t, first.Credentials(), &vfs.PathOperation{
		Root: root, Start: root, Path: fspath.Parse("/"),
	})
}

// watched says how the outcome of which system call is read. Numbers differ by
// architecture, names do not.
func watched() map[string]refusals {
	m := make(map[string]refusals)
	add := func(fn refusals, names ...string) {
		for _, n := range names {
			m[n] = fn
		}
	}
	add(noTask, "clone", "clone3", "fork", "vfork")
	add(noDescriptor, "dup", "dup3", "fcntl", "pipe", "pipe2", "socket", "socketpair", "accept", "accept4",
		"epoll_create", "epoll_create1", "eventfd", "eventfd2", "memfd_create", "timerfd_create",
		"inotify_init", "inotify_init1", "signalfd", "signalfd4", "pidfd_open")
	add(noNameOrDescriptor, "open", "openat", "openat2", "creat")
	add(noName, "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat",
		"rename", "renameat", "renameat2", "bind", "truncate")
	add(noBytes(0), "write", "writev", "pwrite64", "pwritev", "pwritev2", "fallocate", "ftruncate", "sendfile")
	add(noBytes(2), "splice", "copy_file_range")
	return m
}

// boxFull reports whether the guest holds as many tasks as the box may have, or
// the caller's hard limit allows. The guest kernel counts RLIMIT_NPROC for each
// user apart, as Linux does; guest root could start that many as every user that
// it can become. The first process, which is not the program's, is not counted
// with its threads, and the agent, which has to work in a full box, is let
// through as RLIMIT_NPROC lets it.
func (r *reporter) boxFull(t *kernel.Task, thread bool) bool {
	first := t.Kernel().GlobalInit()
	if t.HasRootCapability(linux.CAP_SYS_RESOURCE) || thread && t.ThreadGroup() == first {
		return false
	}
	most := r.most
	if most == 0 {
		most = t.ThreadGroup().Limits().Get(limits.ProcessCount).Max
	}
	return uint64(t.Kernel().RootPIDNamespace().NumTasks()-first.Count()) >= most
}

// unlessFull makes a call that makes a task fail in a full box. Such a call
// does not wait for anything: vfork(2) does that after it, in the guest kernel.
func (r *reporter) unlessFull(name string, fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		r.memory.begin(t)
		r.making.Lock()
		defer r.making.Unlock()
		if r.boxFull(t, makesThread(name, args)) {
			return 0, nil, linuxerr.EAGAIN
		}
		return fn(t, sysno, args)
	}
}

// makesThread reports whether a call would add to its caller's threads rather
// than make a process: clone(2), CLONE_THREAD. The Go runtime, whose threads are
// meant, does not use clone3.
func makesThread(name string, args arch.SyscallArguments) bool {
	return name == "clone" && args[0].Uint64()&linux.CLONE_THREAD != 0
}

// reportLimits wraps the watched system calls of the guest kernel's tables. It
// must be called before the kernel is built from them.
func reportLimits(pipe *os.File, tasks, memory uint64) {
	r := &reporter{pipe: pipe, most: tasks}
	_ = debug.SetCrashOutput(pipe, debug.CrashOptions{}) // else a panic is not told
	r.memory = newMemoryKeeper(memory, func() { _, _ = pipe.Write([]byte{byte(limitMemory)}) })
	calls := watched()
	makesTask := map[string]bool{"clone": true, "clone3": true, "fork": true, "vfork": true}
	opens := map[string]bool{"open": true, "openat": true, "creat": true}
	for _, table := range []*kernel.SyscallTable{slinux.AMD64, slinux.ARM64} {
		if memory > 0 {
			r.memory.watchBigCalls(table)
		}
		for no, sc := range table.Table {
			if sc.Name == "recvmsg" {
				sc.Fn = tellsTruncation(sc.Fn)
				table.Table[no] = sc
			}
			if sc.Name == "kill" && memory > 0 {
				sc.Fn = r.memory.watchKill(sc.Fn)
				table.Table[no] = sc
			}
			if strings.HasSuffix(sc.Name, "setxattr") && memory > 0 {
				sc.Fn = r.watchAttributes(sc.Fn)
				table.Table[no] = sc
			}
			tell, ok := calls[sc.Name]
			if !ok {
				continue
			}
			fn := sc.Fn
			if sc.Name == "write" {
				fn = r.hearAgent(fn)
			}
			if makesTask[sc.Name] {
				fn = r.unlessFull(sc.Name, fn)
			}
			if opens[sc.Name] {
				fn = makesReadOnly(sc.Name, fn)
			}
			sc.Fn = func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				r.meet(t)
				ret, ctl, err := fn(t, sysno, args)
				if err != nil {
					tell(r, t, args, err)
				}
				return ret, ctl, err
			}
			table.Table[no] = sc
		}
		table.Init() // the guest kernel calls through a copy made from Table
	}
}
