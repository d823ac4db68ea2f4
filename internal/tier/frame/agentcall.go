package frame

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// AgentName is the agent's argv[0]. Where no separate agent was built, the
// agent's file in the box is this whole program.
const AgentName = "sunaba-agent"

// agentTimeout is how long the agent may make no progress: neither take bytes nor
// give any. What goes in comes from us and may be large, and the disk slow. What
// comes out is hostile: collectTimeout bounds it altogether, so that a box whose
// files are many, or who gives a byte now and then, does not hold its caller.
const (
	agentTimeout   = 60 * time.Second
	collectTimeout = 3 * time.Minute
)

// RunAgent runs the small agent in the box as e says, with bytes for its stdin or from
// its stdout, and waits for its end. What it says on stderr is hostile text.
func (b *Box) RunAgent(ctx context.Context, e wire.Exec, in io.Reader, out io.Writer, args ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tooLong := fmt.Errorf("not done after %v: %w", agentTimeout, context.DeadlineExceeded)
	patience := time.AfterFunc(agentTimeout, func() { cancel(tooLong) })
	defer patience.Stop()
	if in == nil {
		all := time.AfterFunc(collectTimeout, func() { cancel(fmt.Errorf("not done after %v: %w", collectTimeout, context.DeadlineExceeded)) })
		defer all.Stop()
	}
	progress := func() { patience.Reset(agentTimeout) }
	var pipes [3][2]*os.File // read end, write end
	defer func() {
		for _, p := range pipes {
			CloseAll(p[:])
		}
	}()
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("cannot make pipe: %w", err)
		}
		pipes[i] = [2]*os.File{r, w}
	}
	e.Dir, e.Argv = "/", append([]string{AgentName}, args...)
	var ps wire.Started
	if err := b.Conn.Call(ctx, "exec", e, &ps, pipes[0][0], pipes[1][1], pipes[2][1]); err != nil {
		return fmt.Errorf("cannot start agent: %w", err)
	}
	CloseAll([]*os.File{pipes[0][0], pipes[1][1], pipes[2][1]})
	stop := context.AfterFunc(ctx, func() {
		now := time.Now()
		_ = pipes[0][1].SetWriteDeadline(now)
		_ = pipes[1][0].SetReadDeadline(now)
		_ = pipes[2][0].SetReadDeadline(now)
	})
	defer stop()

	said := stream.NewCapture(4 << 10)
	saidAll := make(chan struct{})
	go func() {
		defer close(saidAll)
		_, _ = io.Copy(said, pipes[2][0])
	}()
	sent := make(chan error, 1)
	go func() {
		var err error
		if in != nil {
			_, err = io.Copy(pipes[0][1], taken{in, progress})
		}
		pipes[0][1].Close()
		sent <- err
	}()
	_, rerr := io.Copy(out, taken{pipes[1][0], progress})
	if rerr != nil {
		pipes[1][0].Close() // the agent must not block on a reader that has gone
	}
	var wr wire.Waited
	if err := b.Conn.Call(ctx, "wait", wire.Wait{Pid: ps.Pid}, &wr); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("cannot wait for agent: %w", err)
	}
	<-saidAll
	if wr.Status != 0 && rerr == nil {
		return fmt.Errorf("%s", stream.Clean(said.Bytes()))
	}
	if rerr != nil {
		return rerr
	}
	return <-sent
}

// taken is a reader that tells when it is asked for more: what it gave before
// has been taken, or has come.
type taken struct {
	io.Reader
	tell func()
}

func (r taken) Read(p []byte) (int, error) {
	r.tell()
	return r.Reader.Read(p)
}
