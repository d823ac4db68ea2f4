package host

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Links is a socket with a name in a folder, at which one process after the
// other can begin a [Link] with whoever holds it.
type Links struct{ l *net.UnixListener }

// waiting is how many may wait to be accepted.
const waiting = 8

// ListenAt makes such a socket, which only the caller's user can connect to, and
// returns it for a child. The folder must be the caller's own. Its path may be
// longer than a socket's name can be: unix(7).
func ListenAt(dir, name string) (*os.File, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot listen in %s: %w", dir, err)
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	// The mode that bind(2) gives the name is that of the socket's inode.
	if err := unix.Fchmod(fd, 0o600); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot close socket to others: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: FDPath(d.Fd()) + "/" + name}); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot name socket in %s: %w", dir, err)
	}
	if err := unix.Listen(fd, waiting); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot listen in %s: %w", dir, err)
	}
	return f, nil
}

// ErrBusy is for a socket at which too many wait already: its holder does not
// accept them.
var ErrBusy = errors.New("too many wait to be heard")

// DialAt begins a link with whoever holds the socket of [ListenAt]. It does not
// wait to be accepted.
func DialAt(dir, name string) (*Link, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot connect in %s: %w", dir, err)
	}
	defer d.Close()
	// Not to wait: connect(2) would, for as long as the queue is full.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: FDPath(d.Fd()) + "/" + name}); err != nil {
		f.Close()
		if errors.Is(err, unix.EAGAIN) {
			err = ErrBusy
		}
		return nil, fmt.Errorf("cannot connect in %s: %w", dir, err)
	}
	return NewLink(f)
}

// IsListening reports whether a descriptor is a listening socket: SO_ACCEPTCONN
// of socket(7).
func IsListening(f *os.File) bool {
	v, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && v == 1
}

// NewLinks takes over a listening socket.
func NewLinks(f *os.File) (*Links, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use socket: %w", err)
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, errors.New("cannot use socket: it is not a unix socket")
	}
	return &Links{ul}, nil
}

// Accept waits for the next link, or for Close.
func (l *Links) Accept() (*Link, error) {
	c, err := l.l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("cannot accept link: %w", err)
	}
	return &Link{conn: c}, nil
}

// Close ends the listening. The name stays.
func (l *Links) Close() error { return l.l.Close() }

// File returns a duplicate of the socket's descriptor, for a program that takes
// this one's place.
func (l *Links) File() (*os.File, error) { return l.l.File() }
