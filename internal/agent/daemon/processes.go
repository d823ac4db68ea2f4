package daemon

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// processes is the service of that name.
type processes struct{ *agent }

func (s processes) find(pid uint32) (*process, error) {
	if p := s.table.find(pid); p != nil {
		return p, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("cannot find process %d: it was not started here, or is forgotten", pid))
}

func (s processes) Start(ctx context.Context, r *connect.Request[pb.StartRequest]) (*connect.Response[pb.StartResponse], error) {
	p, err := s.start(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StartResponse{Pid: uint32(p.pid)}), nil
}

func (s processes) Output(ctx context.Context, r *connect.Request[pb.OutputRequest], stream *connect.ServerStream[pb.OutputResponse]) error {
	p, err := s.find(r.Msg.Pid)
	if err != nil {
		return err
	}
	f, err := p.out.follow([2]int64{r.Msg.StdoutFrom, r.Msg.StderrFrom})
	if err != nil {
		return err
	}
	p.out.readBy(ctx, f)
	err = p.tellAll(ctx, f, stream.Send)
	p.out.leave(f, err != nil)
	return err
}

func (s processes) Input(ctx context.Context, r *connect.Request[pb.InputRequest]) (*connect.Response[pb.InputResponse], error) {
	p, err := s.find(r.Msg.Pid)
	if err != nil {
		return nil, err
	}
	taken, err := p.in.write(ctx, r.Msg.At, r.Msg.Data, r.Msg.End)
	if err != nil {
		return nil, failed("write input of process", fmt.Sprint(p.pid), err)
	}
	return connect.NewResponse(&pb.InputResponse{Taken: taken}), nil
}

func (s processes) Signal(_ context.Context, r *connect.Request[pb.SignalRequest]) (*connect.Response[pb.SignalResponse], error) {
	p, err := s.find(r.Msg.Pid)
	if err != nil {
		return nil, err
	}
	if r.Msg.Signal > 64 {
		return nil, wrong("cannot send signal %d: there are 64", r.Msg.Signal)
	}
	if err := s.table.signal(p, syscall.Signal(r.Msg.Signal), r.Msg.Group); errors.Is(err, syscall.ESRCH) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("cannot signal process %d: it has ended", p.pid))
	} else if err != nil {
		return nil, failed("signal process", fmt.Sprint(p.pid), err)
	}
	return connect.NewResponse(&pb.SignalResponse{}), nil
}

func (s processes) Resize(_ context.Context, r *connect.Request[pb.ResizeRequest]) (*connect.Response[pb.ResizeResponse], error) {
	p, err := s.find(r.Msg.Pid)
	if err != nil {
		return nil, err
	}
	if p.master == nil {
		return nil, wrong("cannot resize the terminal of process %d: it has none", p.pid)
	}
	if err := host.ResizePTY(p.master, sizeOf(r.Msg.Terminal)); err != nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("cannot resize the terminal of process %d: it has ended", p.pid))
	}
	return connect.NewResponse(&pb.ResizeResponse{}), nil
}

func (s processes) List(context.Context, *connect.Request[pb.ListProcessesRequest]) (*connect.Response[pb.ListProcessesResponse], error) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	m := &pb.ListProcessesResponse{}
	for _, p := range s.table.all {
		m.Processes = append(m.Processes, s.table.describe(p))
	}
	shorten(m.Processes)
	return connect.NewResponse(m), nil
}

func (s processes) Forget(_ context.Context, r *connect.Request[pb.ForgetRequest]) (*connect.Response[pb.ForgetResponse], error) {
	p, err := s.find(r.Msg.Pid)
	if err != nil {
		return nil, err
	}
	if !s.table.forget(p) {
		return nil, wrong("cannot forget process %d: it has not ended", p.pid)
	}
	return connect.NewResponse(&pb.ForgetResponse{}), nil
}
