package gvisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// agentName is the agent's argv[0]. Where no separate agent was built, the
// agent's file in the guest is this whole program; see Dispatch.
const agentName = "sunaba-agent"

// collectTimeout bounds the agent's work, which a hostile tree can only make
// long, not endless.
const collectTimeout = 60 * time.Second

// collectCaps let the agent end everybody and read everything in the guest.
var collectCaps = [...]string{"CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"} //house:const capability names

// Collect implements box.Collector. It first ends every program in the box.
func (b *gbox) Collect(ctx context.Context, root string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	out, outW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot make pipe: %w", err)
	}
	defer out.Close()
	defer outW.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot make pipe: %w", err)
	}
	defer errR.Close()
	defer errW.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", os.DevNull, err)
	}
	defer null.Close()

	req := execRequest{
		File: systemDir + "/agent", Dir: "/", Root: true, Caps: collectCaps[:],
		Argv: []string{agentName, "collect", root, strconv.FormatInt(b.spec.Limits.Disk, 10)},
	}
	var ps execStarted
	if err := b.conn.call(ctx, "exec", req, &ps, null, outW, errW); err != nil {
		return fmt.Errorf("cannot start agent: %w", err)
	}
	outW.Close()
	errW.Close()
	said := stream.NewCapture(4 << 10)
	go io.Copy(said, errR) //nolint: ends with the pipe
	stop := context.AfterFunc(ctx, func() { out.SetReadDeadline(time.Now()) })
	defer stop()
	if _, err := io.Copy(w, out); err != nil {
		return fmt.Errorf("cannot read files of the box: %w", err)
	}
	var wr waitReply
	if err := b.conn.call(ctx, "wait", waitRequest{Pid: ps.Pid}, &wr); err != nil {
		return fmt.Errorf("cannot wait for agent: %w", err)
	}
	if wr.Status != 0 {
		return fmt.Errorf("cannot read files of the box: agent failed: %s", stream.Clean(said.Bytes()))
	}
	return nil
}

var _ box.Collector = (*gbox)(nil)
