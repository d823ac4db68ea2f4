package stream

import (
	"context"
	"io"
)

// While returns a reader of r that fails with the error of ctx once that has
// ended. A Read that is under way is not cut short.
func While(ctx context.Context, r io.Reader) io.Reader { return while{ctx, r} }

type while struct {
	ctx context.Context
	r   io.Reader
}

func (w while) Read(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.Read(b)
}
