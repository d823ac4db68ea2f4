package guest

import (
	"context"

	"connectrpc.com/connect"

	"github.com/sunaba-dev/sunaba/box"
)

// method is a unary method of one of the clients.
type method[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// call makes one call and waits for its answer, at most Options.Call.
func call[Req, Res any](ctx context.Context, g *Guest, op string, f method[Req, Res], req *Req) (*Res, error) {
	res, _, err := try(ctx, g, op, f, req)
	return res, err
}

// again is call for what may be done twice: if the connection breaks under it,
// it is made once more on another one.
func again[Req, Res any](ctx context.Context, g *Guest, op string, f method[Req, Res], req *Req) (*Res, error) {
	res, broke, err := try(ctx, g, op, f, req)
	if broke && ctx.Err() == nil {
		res, _, err = try(ctx, g, op, f, req)
	}
	return res, err
}

func try[Req, Res any](ctx context.Context, g *Guest, op string, f method[Req, Res], req *Req) (res *Res, broke bool, err error) {
	leave, err := g.enter(ctx, op, true)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	return exchange(ctx, g, op, f, req)
}

// refused makes an error for what is not even asked.
func refused(op, format string, args ...any) error {
	return box.Errorf(box.Invalid, op, "cannot "+op+": "+format, args...)
}

// patient is the same guest for what takes an honest agent longer than other
// calls: removing a large tree, starting an interpreter. It waits ten times as
// long.
func (g *Guest) patient() *Guest {
	p := *g
	p.o.Call *= 10
	return &p
}
