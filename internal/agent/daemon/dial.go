package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// dialTime bounds the connecting to a port of the box.
const dialTime = 5 * time.Second

// Dial moves bytes between a port of the box and the stream. It ends when the
// port's side has said all, or is gone.
func (m machine) Dial(ctx context.Context, stream *connect.BidiStream[pb.DialRequest, pb.DialResponse]) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	if first.Port < 1 || first.Port > 65535 {
		return wrong("cannot dial port %d: there is none", first.Port)
	}
	f, err := dial(int(first.Port))
	if err != nil {
		return failed("dial port", fmt.Sprint(first.Port), err)
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	// An empty message says that the port has answered.
	if err := stream.Send(&pb.DialResponse{}); err != nil {
		return err
	}
	go func() {
		for msg, err := first, error(nil); ; msg, err = stream.Receive() {
			if err == nil && len(msg.Data) > 0 {
				_, err = f.Write(msg.Data)
			}
			if err != nil || msg.End {
				_ = control(f, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
			}
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, most)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if err := stream.Send(&pb.DialResponse{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return nil
		}
		if err != nil {
			return failed("read from port", fmt.Sprint(first.Port), err)
		}
	}
}

// dial connects to a port of the loopback interface, by IPv4 or else IPv6.
func dial(port int) (*os.File, error) {
	f, err := dialTo(unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if errors.Is(err, unix.ECONNREFUSED) {
		if f6, err6 := dialTo(unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}); err6 == nil {
			return f6, nil
		}
	}
	return f, err
}

// dialTo connects without holding a thread while it waits.
func dialTo(family int, to unix.Sockaddr) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, to)
	f := os.NewFile(uintptr(fd), "port")
	if errors.Is(err, unix.EINPROGRESS) {
		err = finish(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// finish waits for a connection's fate: connect(2), EINPROGRESS.
func finish(f *os.File) error {
	_ = f.SetWriteDeadline(time.Now().Add(dialTime))
	defer func() { _ = f.SetWriteDeadline(time.Time{}) }()
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	fate := 0
	// The poller forgets what came before it is asked, so look before each wait.
	werr := rc.Write(func(fd uintptr) bool {
		if fate, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil || fate != 0 {
			return true
		}
		_, not := unix.Getpeername(int(fd))
		return !errors.Is(not, unix.ENOTCONN)
	})
	switch {
	case errors.Is(werr, os.ErrDeadlineExceeded):
		return wrong("cannot dial: nobody took the connection in %v", dialTime)
	case werr != nil:
		return werr
	case err == nil && fate != 0:
		return unix.Errno(fate)
	}
	return err
}

// control runs a system call on a file's descriptor, which stays what it is.
func control(f *os.File, call func(fd int) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := rc.Control(func(fd uintptr) { err = call(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}
