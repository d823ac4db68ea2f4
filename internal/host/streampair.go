package host

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// StreamPair returns the two ends of a byte stream, for others than the caller:
// unix(7), socketpair(2).
func StreamPair() (a, b *os.File, err error) { return pair(unix.SOCK_STREAM) }

// PacketPair returns the two ends of a stream of messages, each of which can
// carry a descriptor: see [SendFile].
func PacketPair() (a, b *os.File, err error) { return pair(unix.SOCK_SEQPACKET) }

func pair(kind int) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "stream"), os.NewFile(uintptr(fds[1]), "stream"), nil
}

// SendFile sends one descriptor in a message of its own. It does not wait: a
// reader that is behind is an error.
func SendFile(socket, f *os.File) error {
	err := unix.Sendmsg(int(socket.Fd()), []byte{0}, unix.UnixRights(int(f.Fd())), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err != nil {
		return fmt.Errorf("cannot pass descriptor on: %w", err)
	}
	return nil
}

// StreamConn takes over a descriptor that came from somebody who is not trusted,
// after it was made sure that it is what it should be: a connected unix socket
// that carries bytes. What is sent to it along with bytes, such as descriptors,
// never arrives, since nobody asks for it.
func StreamConn(f *os.File) (net.Conn, error) {
	defer f.Close()
	fd := int(f.Fd())
	for _, want := range []struct{ option, value int }{{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 0}} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option); err != nil || got != want.value {
			return nil, errors.New("cannot use stream: what came is not a byte stream of the host")
		}
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return nil, fmt.Errorf("cannot use stream: it leads nowhere: %w", err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use stream: %w", err)
	}
	return c, nil
}
