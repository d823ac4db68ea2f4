package gvisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sunaba-dev/sunaba/internal/files"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// agentName is the agent's argv[0]. Where no separate agent was built, the
// agent's file in the guest is this whole program; see Dispatch.
const agentName = "sunaba-agent"

// agentTimeout bounds one piece of the agent's work, which a hostile tree can
// only make long, not endless.
const agentTimeout = 60 * time.Second

// agent runs the agent in the guest, with bytes for its stdin or from its
// stdout, and waits for its end. What it says on stderr is hostile text.
func (b *gbox) agent(ctx context.Context, caps []string, in io.Reader, out io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var pipes [3][2]*os.File // read end, write end
	defer func() {
		for _, p := range pipes {
			closeAll(p[:])
		}
	}()
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("cannot make pipe: %w", err)
		}
		pipes[i] = [2]*os.File{r, w}
	}
	req := execRequest{File: systemDir + "/agent", Dir: "/", Root: true, Caps: caps, Argv: append([]string{agentName}, args...)}
	var ps execStarted
	if err := b.conn.call(ctx, "exec", req, &ps, pipes[0][0], pipes[1][1], pipes[2][1]); err != nil {
		return fmt.Errorf("cannot start agent: %w", err)
	}
	closeAll([]*os.File{pipes[0][0], pipes[1][1], pipes[2][1]})
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
			_, err = io.Copy(pipes[0][1], in)
		}
		pipes[0][1].Close()
		sent <- err
	}()
	_, rerr := io.Copy(out, pipes[1][0])
	if rerr != nil {
		pipes[1][0].Close() // the agent must not block on a reader that has gone
	}
	var wr waitReply
	if err := b.conn.call(ctx, "wait", waitRequest{Pid: ps.Pid}, &wr); err != nil {
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

// Capabilities mean something in the guest only.
var (
	collectCaps = [...]string{"CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SYS_RESOURCE"} //house:const end everybody, read everything, in a box full of processes
	placeCaps   = [...]string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"}                             //house:const make files for others
)

// Collect implements box.Collector. It first ends every program in the box.
func (b *gbox) Collect(ctx context.Context, root string, w io.Writer) error {
	if err := b.agent(ctx, collectCaps[:], nil, w, "collect", root, fmt.Sprint(b.spec.Limits.Disk)); err != nil {
		return fmt.Errorf("cannot read files of the box: %w", err)
	}
	return nil
}

// seedsInline is how many bytes of seeds go in with the box's start. gVisor
// holds such an archive in memory; more than this goes in through the agent,
// straight to the disk-backed layer.
const seedsInline = 4 << 20

func (b *gbox) seedBytes() (n int64) {
	for _, s := range b.spec.Seeds {
		n += s.Size
	}
	return n
}

// place puts large seeds into the started box.
func (b *gbox) place(ctx context.Context) error {
	pr, pw := io.Pipe()
	go func() {
		var err error
		b.placed, err = files.BuildSeedTar(pw, b.spec.Seeds, host.BoxUser, host.BoxUser, nil)
		pw.CloseWithError(err)
	}()
	err := b.agent(ctx, placeCaps[:], pr, io.Discard, "place", "/")
	pr.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		return fmt.Errorf("cannot put files into the box: %w", err)
	}
	return nil
}
