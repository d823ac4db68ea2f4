package daemon

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// minEntropy is what a copy needs to become another box, in bytes.
const minEntropy = 32

// Hold makes the clock of programs, cells and readers stand.
func (m machine) Hold(context.Context, *connect.Request[pb.HoldRequest]) (*connect.Response[pb.HoldResponse], error) {
	m.table.clock.Hold()
	return connect.NewResponse(&pb.HoldResponse{}), nil
}

// Renew makes it go on, and interpreters other ones than those of the copies.
// What this process draws for itself comes from the kernel each time.
func (m machine) Renew(_ context.Context, req *connect.Request[pb.RenewRequest]) (*connect.Response[pb.RenewResponse], error) {
	if req.Msg.Copy && len(req.Msg.Entropy) < minEntropy {
		return nil, wrong("cannot renew: %d bytes of entropy, at least %d are needed", len(req.Msg.Entropy), minEntropy)
	}
	if req.Msg.Copy {
		m.code.Renew(req.Msg.Entropy)
	}
	m.table.clock.Go(time.Duration(min(req.Msg.SleptMicros, 1<<50)) * time.Microsecond) // 35 years
	return connect.NewResponse(&pb.RenewResponse{}), nil
}
