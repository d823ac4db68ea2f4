package gvisor

import (
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/bits"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/marshal/primitive"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/socket"
	"gvisor.dev/gvisor/pkg/sentry/socket/control"
	slinux "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/pkg/usermem"
)

// Where recvmsg(2) writes in struct msghdr of a 64-bit program, besides the
// buffers that it points to.
const (
	msgNameLen    = 8
	msgControlLen = 40
	msgFlags      = 48
)

const (
	cmsgHeader = 16 // bytes: length, level, type of a 64-bit program
	cmsgAlign  = 8
	maxControl = 10 << 20 // bytes; gVisor's own bound
)

// recvFlags are the flags that gVisor's recvmsg(2) knows for sockets of IP.
const recvFlags = linux.MSG_OOB | linux.MSG_DONTROUTE | linux.MSG_DONTWAIT | linux.MSG_NOSIGNAL | linux.MSG_WAITALL | linux.MSG_TRUNC |
	linux.MSG_CTRUNC | linux.MSG_PEEK | linux.MSG_CMSG_CLOEXEC | linux.MSG_ERRQUEUE

// tellsTruncation makes recvmsg(2) on a socket of IP set MSG_CTRUNC when the
// program's buffer has no room for all control messages, and gives as much of
// the last one as fits, as put_cmsg in Linux's net/core/scm.c does. gVisor's
// own leaves out what does not fit, and says so for passed descriptors only: a
// program that trusts the flag would take the rest for everything.
func tellsTruncation(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		file := t.GetFile(args[0].Int())
		if file == nil {
			return fn(t, sysno, args)
		}
		defer file.DecRef(t)
		s, ok := file.Impl().(socket.Socket)
		flags := args[2].Int()
		if !ok || !overIP(s) || flags&^recvFlags != 0 {
			return fn(t, sysno, args)
		}
		if file.StatusFlags()&linux.SOCK_NONBLOCK != 0 {
			flags |= linux.MSG_DONTWAIT
		}
		n, err := receive(t, s, args[1].Pointer(), flags)
		return n, nil, err
	}
}

func overIP(s socket.Socket) bool {
	family, _, _ := s.Type()
	return family == linux.AF_INET || family == linux.AF_INET6
}

// receive takes one message from s for the struct msghdr at head.
func receive(t *kernel.Task, s socket.Socket, head hostarch.Addr, flags int32) (uintptr, error) {
	var msg slinux.MessageHeader64
	if _, err := msg.CopyIn(t, head); err != nil {
		return 0, err
	}
	switch {
	case msg.IovLen > linux.UIO_MAXIOV:
		return 0, linuxerr.EMSGSIZE
	case msg.ControlLen > maxControl:
		return 0, linuxerr.ENOBUFS
	}
	dst, err := t.IovecsIOSequence(hostarch.Addr(msg.Iov), int(msg.IovLen), usermem.IOOpts{})
	if err != nil {
		return 0, err
	}
	var deadline ktime.Time
	timeout := s.RecvTimeout() // nanoseconds; 0 is none, below that is "do not wait"
	if timeout > 0 {
		deadline = t.Kernel().MonotonicClock().Now().Add(time.Duration(timeout))
	} else if timeout < 0 {
		flags |= linux.MSG_DONTWAIT
	}
	n, got, sender, senderLen, cms, e := s.RecvMsg(t, dst, int(flags), timeout > 0, deadline, msg.NameLen != 0, msg.ControlLen)
	if e != nil {
		return 0, linuxerr.ConvertIntr(e.ToError(), linuxerr.ERESTARTSYS)
	}
	defer cms.Release(t)

	data := control.PackControlMessages(t, cms, make([]byte, 0, control.CmsgsSpace(t, cms)))
	data, cut := fitControl(data, int(msg.ControlLen))
	if cut {
		got |= linux.MSG_CTRUNC
	}
	if msg.NameLen != 0 {
		if err := putSender(t, sender, senderLen, hostarch.Addr(msg.Name), msg.NameLen, head+msgNameLen); err != nil {
			return 0, err
		}
	}
	if _, err := primitive.CopyUint64Out(t, head+msgControlLen, uint64(len(data))); err != nil {
		return 0, err
	}
	if len(data) > 0 {
		if _, err := t.CopyOutBytes(hostarch.Addr(msg.Control), data); err != nil {
			return 0, err
		}
	}
	_, err = primitive.CopyInt32Out(t, head+msgFlags, int32(got))
	return uintptr(n), err
}

// putSender writes the sender's address, as much of it as fits, and its whole
// length.
func putSender(t *kernel.Task, sender linux.SockAddr, length uint32, to hostarch.Addr, room uint32, lengthTo hostarch.Addr) error {
	if int32(room) < 0 {
		return linuxerr.EINVAL
	}
	if _, err := primitive.CopyUint32Out(t, lengthTo, length); err != nil || sender == nil {
		return err
	}
	b := make([]byte, sender.SizeBytes())
	sender.MarshalUnsafe(b)
	_, err := t.CopyOutBytes(to, b[:min(uint32(len(b)), length, room)])
	return err
}

// fitControl cuts aligned control messages to room bytes and says whether
// anything but padding was lost. A message that is cut says the length that it
// has left; of one whose header does not fit, nothing is left.
func fitControl(data []byte, room int) ([]byte, bool) {
	for at := 0; at+cmsgHeader <= len(data); {
		n := int(hostarch.ByteOrder.Uint64(data[at:]))
		if n < cmsgHeader || n > len(data)-at {
			return data[:at], true // not what PackControlMessages writes
		}
		if room-at < cmsgHeader {
			return data[:min(at, room)], true
		}
		if room-at < n {
			hostarch.ByteOrder.PutUint64(data[at:], uint64(room-at))
			return data[:room], true
		}
		at += bits.AlignUp(n, cmsgAlign)
	}
	return data[:min(len(data), room)], false
}
