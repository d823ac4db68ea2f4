package server

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
)

// short cannot accept a few times, as when one user's boxes have used up what he
// may wait for.
type short struct {
	net.Listener
	left atomic.Int32
}

func (l *short) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.ENOSPC}
	}
	return l.Listener.Accept()
}

func TestAHostWithNothingLeftDoesNotEndTheServer(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	few := &short{Listener: s.Listener}
	few.left.Store(3)
	served := make(chan error, 1)
	srv := HTTP(s.Config.Handler)
	go func() { served <- srv.Serve(Patient(few)) }()
	res, err := http.Get("http://" + s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if few.left.Load() >= 0 {
		t.Error("nothing was lacking")
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("closed: %v", err)
	}
}
