package gvisor

import (
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/marshal/primitive"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// A program stands still between its system calls, not within one, and one call may
// touch as much memory as the program names: read(2) of /dev/zero, a gigabyte. So
// a call that may take more than the guest has left is made in pieces, and waits
// between them until there is memory, or until it is its own program that is ended.
// A call that cannot be made so is refused then, or loses what it only wished for.
//
// Other calls are not touched: those for less than a piece, and all of them while
// there is memory for what each has named.
const (
	pieceBytes = 256 << 10
	// memoryPause is how long a task that is told to stand still, for a copy of the
	// guest, waits for memory all the same.
	memoryPause = time.Second
)

// claim counts n bytes of memory as taken, until they are given back (disclaim),
// or reports that the guest has not as many left.
func (k *memoryKeeper) claim(t *kernel.Task, n uint64) bool {
	n = min(n, 1<<40) // no overflow below
	left, err := k.left(t.Kernel())
	if all := k.claimed.Add(int64(n)); err == nil && left < all {
		k.claimed.Add(-int64(n))
		return false
	}
	return true
}

func (k *memoryKeeper) disclaim(n uint64) { k.claimed.Add(-int64(min(n, 1<<40))) }

// room waits until the guest has memory left. It fails when the task is told to end,
// or to do something else and there is none for a while.
func (k *memoryKeeper) room(t *kernel.Task) error {
	for begun := time.Now(); ; {
		if left, err := k.left(t.Kernel()); err != nil || left >= 0 {
			return nil
		}
		if t.Killed() || t.Interrupted() && time.Since(begun) > memoryPause {
			return linuxerr.ERESTARTSYS
		}
		t.UninterruptibleSleepStart()
		<-time.After(memoryOften)
		t.UninterruptibleSleepFinish()
	}
}

// piece makes one part of a call, after the bytes that are done, and returns how
// many it asked for beside the call's own results.
type piece func(done uint64) (asked uint64, ret uintptr, ctl *kernel.SyscallControl, err error)

// inPieces makes a call for n bytes. It ends with the first piece that is not done
// whole.
func (k *memoryKeeper) inPieces(t *kernel.Task, n uint64, next piece) (uintptr, *kernel.SyscallControl, error) {
	var done uint64
	for {
		var asked uint64
		var ret uintptr
		var ctl *kernel.SyscallControl
		err := k.room(t)
		if err == nil {
			asked, ret, ctl, err = next(done)
		}
		switch {
		case err != nil && done > 0:
			return uintptr(done), nil, nil
		case err != nil:
			return ret, ctl, err
		}
		if done += uint64(ret); uint64(ret) < asked || done >= n {
			return uintptr(done), ctl, nil
		}
	}
}

// A bigCall wraps a system call. What it needs of the others is in base, by name.
type bigCall func(k *memoryKeeper, base map[string]kernel.SyscallFn, fn kernel.SyscallFn) kernel.SyscallFn

// bigCalls are all calls that may touch as much memory as they name, and whose
// bytes are in no other bound, such as that of a socket's buffer.
func bigCalls() map[string]bigCall {
	return map[string]bigCall{
		"read": inBuffer(1, 0), "pread64": inBuffer(1, 3), "write": inBuffer(1, 0), "pwrite64": inBuffer(1, 3),
		"getrandom": inBuffer(0, 0),
		"readv":     vectored("read", false), "preadv": vectored("pread64", false), "preadv2": vectored("pread64", true),
		"writev": vectored("write", false), "pwritev": vectored("pwrite64", false), "pwritev2": vectored("pwrite64", true),
		"sendfile": shortened(3), "splice": shortened(4), "copy_file_range": shortened(4),
		"process_vm_readv": refusedIf(remote), "process_vm_writev": refusedIf(remote),
		"fallocate": refusedIf(fileInMemory), "io_submit": refusedIf(inBackground),
		"mmap": notPopulated,
	}
}

// watchBigCalls wraps them in a table.
func (k *memoryKeeper) watchBigCalls(table *kernel.SyscallTable) {
	base := make(map[string]kernel.SyscallFn)
	for _, sc := range table.Table {
		base[sc.Name] = sc.Fn
	}
	calls := bigCalls()
	for no, sc := range table.Table {
		if wrap := calls[sc.Name]; wrap != nil && sc.Fn != nil {
			sc.Fn = wrap(k, base, sc.Fn)
			table.Table[no] = sc
		}
	}
}

// small reports whether a call for n bytes is made as it is.
func small(t *kernel.Task, n uint64) bool {
	return n <= pieceBytes || t.ThreadGroup() == t.Kernel().GlobalInit()
}

// endless reports whether a file may have, or take, as many bytes as a call names:
// what goes through pipes and sockets is bounded by them.
func endless(t *kernel.Task, fd int32) bool {
	f := t.GetFile(fd)
	if f == nil {
		return false
	}
	defer f.DecRef(t)
	st, err := f.Stat(t, vfs.StatOptions{Mask: linux.STATX_TYPE})
	return err == nil && (st.Mode&linux.S_IFMT == linux.S_IFREG || st.Mode&linux.S_IFMT == linux.S_IFCHR)
}

// inBuffer is for calls with a buffer at argument at, its length, and perhaps an
// offset; 0 = none.
func inBuffer(at, offset int) bigCall {
	return func(k *memoryKeeper, _ map[string]kernel.SyscallFn, fn kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			n := args[at+1].Uint64()
			if small(t, n) || at > 0 && !endless(t, args[0].Int()) {
				return fn(t, sysno, args)
			}
			if k.claim(t, n) {
				defer k.disclaim(n)
				return fn(t, sysno, args)
			}
			return k.inPieces(t, n, func(done uint64) (uint64, uintptr, *kernel.SyscallControl, error) {
				asked := min(n-done, pieceBytes)
				a := args
				a[at].Value += uintptr(done)
				a[at+1].Value = uintptr(asked)
				if offset > 0 {
					a[offset].Value += uintptr(done)
				}
				ret, ctl, err := fn(t, sysno, a)
				return asked, ret, ctl, err
			})
		}
	}
}

// vectored is for calls with buffers, which are made as calls with one. Those with
// flags are refused: nothing else takes them.
func vectored(as string, flags bool) bigCall {
	return func(k *memoryKeeper, base map[string]kernel.SyscallFn, fn kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			bufs, err := t.CopyInIovecs(args[1].Pointer(), int(args[2].Int()))
			n := uint64(bufs.NumBytes())
			if err != nil || small(t, n) || !endless(t, args[0].Int()) {
				return fn(t, sysno, args)
			}
			if k.claim(t, n) {
				defer k.disclaim(n)
				return fn(t, sysno, args)
			}
			if flags && (args[5].Int() != 0 || args[3].Int64() < 0) {
				return 0, nil, linuxerr.ENOMEM
			}
			return k.inPieces(t, n, func(done uint64) (uint64, uintptr, *kernel.SyscallControl, error) {
				head := bufs.DropFirst64(int64(done)).Head()
				asked := min(uint64(head.Length()), pieceBytes)
				a := arch.SyscallArguments{args[0], {Value: uintptr(head.Start)}, {Value: uintptr(asked)}, {Value: args[3].Value + uintptr(done)}}
				ret, ctl, err := base[as](t, sysno, a)
				return asked, ret, ctl, err
			})
		}
	}
}

// shortened is for calls that may do less than they are asked for, with any file.
func shortened(at int) bigCall {
	return func(k *memoryKeeper, _ map[string]kernel.SyscallFn, fn kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			n := args[at].Uint64()
			if small(t, n) {
				return fn(t, sysno, args)
			}
			if k.claim(t, n) {
				defer k.disclaim(n)
				return fn(t, sysno, args)
			}
			if err := k.room(t); err != nil {
				return 0, nil, err
			}
			args[at].Value = pieceBytes
			return fn(t, sysno, args)
		}
	}
}

// refusedIf is for calls that fail when what they touch is more than there is; takes
// says how much that is, and with which error.
func refusedIf(takes func(*kernel.Task, arch.SyscallArguments) (uint64, error)) bigCall {
	return func(k *memoryKeeper, _ map[string]kernel.SyscallFn, fn kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			n, refusal := takes(t, args)
			if small(t, n) {
				return fn(t, sysno, args)
			}
			if !k.claim(t, n) {
				return 0, nil, refusal
			}
			defer k.disclaim(n)
			return fn(t, sysno, args)
		}
	}
}

// remote is of process_vm_readv(2) and its twin, which touch memory at both ends.
func remote(t *kernel.Task, args arch.SyscallArguments) (uint64, error) {
	bufs, err := t.CopyInIovecs(args[1].Pointer(), int(args[2].Int()))
	if err != nil {
		return 0, nil
	}
	return 2 * uint64(bufs.NumBytes()), linuxerr.ENOMEM
}

// fileInMemory is of fallocate(2). What the writable layer holds is no memory.
func fileInMemory(t *kernel.Task, args arch.SyscallArguments) (uint64, error) {
	f := t.GetFile(args[0].Int())
	if f == nil {
		return 0, nil
	}
	defer f.DecRef(t)
	if f.Mount().Filesystem().FilesystemType().Name() == overlay.Name {
		return 0, nil
	}
	return args[3].Uint64(), linuxerr.ENOSPC
}

// inBackground is of io_submit(2), whose calls are made by and by.
func inBackground(t *kernel.Task, args arch.SyscallArguments) (n uint64, _ error) {
	const most = 1024 // of one call; each is more than nothing
	for i := range min(args[1].Int(), most) {
		var at primitive.Uint64
		if _, err := at.CopyIn(t, args[2].Pointer()+hostarch.Addr(8*i)); err != nil {
			break
		}
		var cb linux.IOCallback
		if _, err := cb.CopyIn(t, hostarch.Addr(at)); err != nil {
			break
		}
		n += min(cb.Bytes, 1<<40)
	}
	return n, linuxerr.EAGAIN
}

// notPopulated is for mmap(2): that it be populated is a wish.
func notPopulated(k *memoryKeeper, _ map[string]kernel.SyscallFn, fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		n := args[1].Uint64()
		if args[3].Uint64()&linux.MAP_POPULATE == 0 || small(t, n) {
			return fn(t, sysno, args)
		}
		if k.claim(t, n) {
			defer k.disclaim(n)
			return fn(t, sysno, args)
		}
		args[3].Value &^= linux.MAP_POPULATE
		return fn(t, sysno, args)
	}
}
