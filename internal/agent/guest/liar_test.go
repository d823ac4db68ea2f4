package guest_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
)

// A service is what a lying agent answers to one procedure.
type service struct {
	path string
	http http.Handler
}

// unary answers a call.
func unary[Req, Res any](path string, f func(*Req) (*Res, error)) service {
	return service{path, connect.NewUnaryHandler(path, func(_ context.Context, r *connect.Request[Req]) (*connect.Response[Res], error) {
		m, err := f(r.Msg)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(m), nil
	})}
}

// says answers a call with always the same.
func says[Req, Res any](path string, m *Res) service {
	return unary(path, func(*Req) (*Res, error) { return m, nil })
}

// streams answers a call with a stream.
func streams[Req, Res any](path string, f func(context.Context, func(*Res) error) error) service {
	return service{path, connect.NewServerStreamHandler(path, func(ctx context.Context, _ *connect.Request[Req], s *connect.ServerStream[Res]) error {
		return f(ctx, s.Send)
	})}
}

// tells answers a call with always the same stream.
func tells[Req, Res any](path string, all ...*Res) service {
	return streams[Req](path, func(_ context.Context, send func(*Res) error) error {
		for _, m := range all {
			if err := send(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// raw answers a call with whatever bytes.
func raw(path string, f http.HandlerFunc) service { return service{path, f} }

// hello is what an honest agent says first.
func hello() service {
	return says[agentpb.HelloRequest](agentpbconnect.MachineHelloProcedure, &agentpb.HelloResponse{Protocol: 1, Users: []string{"user"}, Dir: "/work"})
}

// socketpair returns the two ends of a stream.
func socketpair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "stream")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return ends[0], ends[1]
}

// oneConn is a listener with one connection.
type oneConn struct {
	c    chan net.Conn
	done chan struct{}
	once sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.c:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// liar returns a guest whose agent has these services.
func liar(t testing.TB, o guest.Options, all ...service) *guest.Guest {
	t.Helper()
	mux := http.NewServeMux()
	for _, s := range all {
		mux.Handle(s.path, s.http)
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: mux, Protocols: &p, ErrorLog: log.New(io.Discard, "", 0)}
	l := &oneConn{c: make(chan net.Conn, 16), done: make(chan struct{})}
	go func() { _ = srv.Serve(l) }()
	g := guest.New(func(context.Context) (net.Conn, error) {
		ours, theirs := socketpair(t)
		l.c <- theirs
		return ours, nil
	}, o)
	t.Cleanup(func() {
		g.Close()
		srv.Close()
		l.Close()
	})
	return g
}

// rawLiar returns a guest whose agent is a function on the stream's other end.
func rawLiar(t testing.TB, o guest.Options, f func(net.Conn)) *guest.Guest {
	t.Helper()
	g := guest.New(func(context.Context) (net.Conn, error) {
		ours, theirs := socketpair(t)
		go func() {
			defer theirs.Close()
			f(theirs)
		}()
		return ours, nil
	}, o)
	t.Cleanup(g.Close)
	return g
}

// noGoroutineLeft registers a check for the end of the test. It is to be called
// first, so that it comes last.
func noGoroutineLeft(t testing.TB) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(2 * time.Minute)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Errorf("%d goroutines more than before:\n%s", runtime.NumGoroutine()-before, buf[:runtime.Stack(buf, true)])
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}
