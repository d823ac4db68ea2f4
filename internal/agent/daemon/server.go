package daemon

import (
	"io"
	"log"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
	"github.com/sunaba-dev/sunaba/internal/agent/contexts"
)

// maxMessage bounds a message that we read, in bytes.
const maxMessage = 1<<20 + 64<<10

// serve answers on every stream that comes, for ever.
func (a *agent) serve(l net.Listener) error {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // the other end is on this machine
	}
	mux := http.NewServeMux()
	mux.Handle(agentpbconnect.NewProcessesHandler(processes{a}, opts...))
	mux.Handle(agentpbconnect.NewFilesHandler(files{a}, opts...))
	mux.Handle(agentpbconnect.NewMachineHandler(machine{a}, opts...))
	a.code = contexts.New(contexts.Config{Start: a.interpreter, Dir: a.args.dir, Clock: a.table.clock})
	defer a.code.Close()
	mux.Handle(a.code.Handler())
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler:   lean(mux, a.args.keepCode),
		Protocols: &p,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          1000,
			MaxReceiveBufferPerConnection: 1 << 20,
			MaxReceiveBufferPerStream:     128 << 10,
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return srv.Serve(l)
}
