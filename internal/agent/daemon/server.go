package daemon

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
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
	mux.Handle(agentpbconnect.NewFilesHandler(files{agent: a}, opts...))
	mux.Handle(agentpbconnect.NewMachineHandler(machine{agent: a}, opts...))
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler:   mux,
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

// machine is the service of that name.
type machine struct {
	agentpbconnect.UnimplementedMachineHandler
	*agent
}

func (m machine) Hello(context.Context, *connect.Request[pb.HelloRequest]) (*connect.Response[pb.HelloResponse], error) {
	users := []string{userOrdinary}
	if m.args.root {
		users = append(users, userRoot)
	}
	return connect.NewResponse(&pb.HelloResponse{Protocol: 1, Users: users, Dir: m.args.dir}), nil
}
