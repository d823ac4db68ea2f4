package daemon

import (
	"context"
	"errors"
	"io"
	"math"
	"os"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// chunk is how much of a file is sent at a time.
const chunk = 64 << 10

// Read sends a file from offset on, in pieces, as fast as they are taken. What
// the kernel makes up as it is read (proc(5)) has no length that one could know
// before: it ends where it ends, or after the length that was asked for.
func (f files) Read(ctx context.Context, r *connect.Request[pb.ReadRequest], stream *connect.ServerStream[pb.ReadResponse]) error {
	p := string(r.Msg.Path)
	if err := checkPath(p); err != nil {
		return err
	}
	if r.Msg.Offset > math.MaxInt64 {
		return wrong("cannot read %s: no file reaches position %d", shown(p), r.Msg.Offset)
	}
	return failed("read", p, f.read(ctx, p, int64(r.Msg.Offset), r.Msg.Length, stream.Send))
}

func (f files) read(ctx context.Context, p string, offset, length int64, send func(*pb.ReadResponse) error) error {
	var st unix.Stat_t
	var file *os.File
	var err error
	f.slots.do(func() {
		file, err = openFile(p, &st)
	})
	if err != nil {
		return err
	}
	defer file.Close()
	if err := send(&pb.ReadResponse{Entry: entry(p, &st)}); err != nil {
		return err
	}
	if length < 0 {
		length = math.MaxInt64
	}
	buf := make([]byte, min(chunk, length))
	for length > 0 && ctx.Err() == nil {
		var n int
		f.slots.do(func() { n, err = file.ReadAt(buf[:min(int64(len(buf)), length)], offset) })
		if n > 0 {
			if err := send(&pb.ReadResponse{Data: buf[:n]}); err != nil {
				return err
			}
			offset, length = offset+int64(n), length-int64(n)
		}
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			if errors.Is(err, unix.EAGAIN) {
				return wrong("cannot read %s: nothing comes now", shown(p))
			}
			return err
		}
	}
	return ctx.Err()
}
