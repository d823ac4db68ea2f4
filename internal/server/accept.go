package server

import (
	"errors"
	"net"
)

// Patient returns a listener of which an http.Server never has enough. Without
// it the server ends at the first error that it does not take for a passing one;
// yet what is used up on this host, by whomever, comes back: descriptors, memory,
// and what one user may wait for with epoll (max_user_watches of epoll(7)), which
// is ENOSPC. The server waits up to a second between two tries, and logs each.
func Patient(l net.Listener) net.Listener { return patient{l} }

type patient struct{ net.Listener }

func (l patient) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		err = passing{err}
	}
	return c, err
}

// passing is a net.Error after which net/http tries again.
type passing struct{ error }

func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }
func (p passing) Unwrap() error { return p.error }
