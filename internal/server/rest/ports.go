package rest

import (
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

type portRequest struct {
	BoxPath
	Port    uint16 `path:"port" minimum:"1" maximum:"65535" doc:"A TCP port of the box's loopback interface."`
	Upgrade string `header:"Upgrade" doc:"tcp; with Connection: Upgrade."`
}

// port makes the connection a tunnel to a port inside (RFC 9110, section 7.8).
// Nothing of the request reaches the box: what is sent after it does.
func (a *API) port(w http.ResponseWriter, r *http.Request, in *portRequest) error {
	if !strings.EqualFold(in.Upgrade, "tcp") || !wantsUpgrade(r.Header) || r.ProtoMajor != 1 {
		w.Header().Set("Upgrade", "tcp")
		return server.Bad(http.StatusUpgradeRequired, server.NoUpgrade, "send Connection: Upgrade and Upgrade: tcp", "cannot open a tunnel: the request does not ask for one")
	}
	if r.ContentLength != 0 {
		return box.Errorf(box.Invalid, "open tunnel", "cannot open a tunnel: the request has a body, which would be the tunnel's first bytes")
	}
	g, err := a.guest(r.Context(), in.ID, box.ScopeExec)
	if err != nil {
		return err
	}
	ctx, cancel := a.call(r.Context())
	inside, err := g.Dial(ctx, in.Port)
	cancel()
	if err != nil {
		return err
	}
	defer inside.Close()
	outside, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer outside.Close()
	outside.SetDeadline(time.Time{}) // a tunnel lives for as long as both ends do
	if _, err := io.WriteString(outside, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"); err != nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		pour(inside, buffered.Reader, outside)
	}()
	pour(outside, inside, inside)
	<-done
	return nil
}

// wantsUpgrade reports whether Connection names Upgrade, without which that is
// not for this server (RFC 9110, section 7.8): one in between may have passed on
// a client's Upgrade that it does not know of itself.
func wantsUpgrade(h http.Header) bool {
	for _, line := range h.Values("Connection") {
		for _, option := range strings.Split(line, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "upgrade") {
				return true
			}
		}
	}
	return false
}

// pour copies until from ends, and passes that end on. When an end breaks off,
// both are closed.
func pour(to net.Conn, r io.Reader, from net.Conn) {
	if _, err := io.Copy(to, r); err != nil {
		from.Close()
		to.Close()
		return
	}
	closeWrite(to)
}

// closeWrite says that nothing more comes, where that can be said, and else
// that all is over.
func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		h.CloseWrite()
		return
	}
	c.Close()
}
