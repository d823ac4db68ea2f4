package fake

import (
	"context"
	"net"
	"os"
	"syscall"
	"time"
)

// pair returns the two ends of a stream, as files.
func pair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs"), nil
}

// knock connects to a socket of this host.
func knock(path string) (*net.UnixConn, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// handOver makes a stream and gives one end to the agent, as its own program
// does with `connect`.
func (l *Lasting) handOver(ctx context.Context) (net.Conn, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	link, err := knock(l.st.Link)
	if err != nil {
		return nil, err
	}
	defer link.Close()
	// Whichever is first ends it: the caller, or the box.
	defer context.AfterFunc(ctx, func() { _ = link.SetDeadline(time.Now()) })()
	if _, _, err := link.WriteMsgUnix([]byte{1}, syscall.UnixRights(int(theirs.Fd())), nil); err != nil {
		return nil, err
	}
	if _, err := link.Read(make([]byte, 1)); err != nil { // the agent has it
		return nil, err
	}
	return net.FileConn(ours)
}
