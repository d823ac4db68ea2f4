package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// streams is a listener whose connections are handed over, each by a message
// with one descriptor. It never fails: what hands them over may end, and come
// again from elsewhere.
type streams struct {
	conns chan net.Conn
	done  chan struct{}
}

func newStreams() *streams {
	return &streams{conns: make(chan net.Conn, 16), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *streams) Close() error {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return nil
}

// Addr implements net.Listener.
func (s *streams) Addr() net.Addr { return &net.UnixAddr{Name: Argv, Net: "unix"} }

// open takes descriptor 3 into use, and listens if it was told where.
func (s *streams) open(a args) error {
	if a.handover {
		f := os.NewFile(3, "handover")
		c, err := net.FileConn(f)
		f.Close()
		link, ok := c.(*net.UnixConn)
		if err == nil && !ok {
			err = fmt.Errorf("it is a %T", c)
		}
		if err != nil {
			return fmt.Errorf("cannot take streams from descriptor 3: %w", err)
		}
		go func() {
			for {
				c, err := receive(link)
				if errors.Is(err, errNoStream) {
					continue // it was not for us; the next may be
				}
				if err != nil {
					link.Close()
					return // the agent goes on with the streams that it has
				}
				s.conns <- c
			}
		}()
	} else {
		c, err := stream(3)
		if err != nil {
			return fmt.Errorf("cannot serve descriptor 3: %w", err)
		}
		s.conns <- c
	}
	if a.socket != "" {
		return s.listen(a.socket)
	}
	return nil
}

// errNoStream says that a message brought no stream.
var errNoStream = errors.New("cannot take stream: the message has none")

// receive waits for the next message and returns the stream that came with it.
func receive(link *net.UnixConn) (net.Conn, error) {
	buf, oob := make([]byte, 64), make([]byte, unix.CmsgSpace(4*16))
	n, oobn, flags, _, err := link.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	fds := descriptors(oob[:oobn])
	if n == 0 && oobn == 0 {
		return nil, net.ErrClosed
	}
	if len(fds) != 1 || flags&unix.MSG_CTRUNC != 0 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("%w: it has %d descriptors", errNoStream, len(fds))
	}
	c, err := stream(fds[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoStream, err)
	}
	return c, nil
}

// descriptors takes the descriptors out of control messages, unix(7).
func descriptors(oob []byte) []int {
	var fds []int
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range msgs {
		if len(m.Data)%4 != 0 {
			continue // the kernel makes none such, and x/sys reads past its end
		}
		if rights, err := unix.ParseUnixRights(&m); err == nil {
			for _, fd := range rights {
				unix.CloseOnExec(fd)
			}
			fds = append(fds, rights...)
		}
	}
	return fds
}

// stream makes a connection of a descriptor, which it takes, if that is a
// connected stream socket.
func stream(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "stream")
	if f == nil {
		return nil, unix.EBADF
	}
	defer f.Close()
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return nil, err
	}
	if kind != unix.SOCK_STREAM {
		return nil, fmt.Errorf("cannot use a socket of type %d: want a stream", kind)
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// listen takes streams from whoever connects to a socket in the box: [connectTo].
// Its folder is closed to all but the agent's user.
func (s *streams) listen(path string) error {
	_ = os.Remove(path) // of an agent before this one
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("cannot listen at %s: %w", path, err)
	}
	go func() {
		for {
			link, err := l.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // a shortage, which passes: nobody else could be reached
				<-time.After(listenAgain)
				continue
			}
			go func() {
				defer link.Close()
				_ = link.SetDeadline(time.Now().Add(handoverTime))
				if c, err := receive(link); err == nil && isOurs(link) {
					s.conns <- c
					_, _ = link.Write([]byte{1})
				}
			}()
		}
	}()
	return nil
}

const listenAgain = 100 * time.Millisecond

// handoverTime bounds the handing over of a stream in the box.
const handoverTime = 10 * time.Second

// isOurs reports whether a peer is of our own user: SO_PEERCRED, unix(7).
func isOurs(link *net.UnixConn) bool {
	rc, err := link.SyscallConn()
	if err != nil {
		return false
	}
	ours := false
	_ = rc.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ours = err == nil && int(cred.Uid) == os.Getuid()
	})
	return ours
}

// connectTo hands descriptor 3 to the agent that listens at path, and returns
// when that has it.
func connectTo(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot make socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("cannot connect to %s: %w", path, err)
	}
	if err := unix.Sendmsg(fd, []byte{1}, unix.UnixRights(3), nil, 0); err != nil {
		return fmt.Errorf("cannot hand over descriptor 3: %w", err)
	}
	answer := make([]byte, 1)
	for {
		n, err := unix.Read(fd, answer)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && n == 1:
			return nil
		default:
			return fmt.Errorf("cannot hand over descriptor 3: the agent did not take it (%v)", err)
		}
	}
}
