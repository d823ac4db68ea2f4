package gvisor

import (
	"context"
	"fmt"
	"io"

	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/files"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Capabilities mean something in the guest only.
var (
	collectCaps = [...]string{"CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SYS_RESOURCE"} //house:const end everybody, read everything, in a box full of processes
	connectCaps = [...]string{"CAP_SYS_RESOURCE"}                                                        //house:const start in a box full of processes
	placeCaps   = [...]string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"}                             //house:const make files for others
)

// guestAgent is the agent as guest root with a few of its powers.
func guestAgent(caps []string) wire.Exec {
	return wire.Exec{File: systemDir + "/agent", Root: true, Caps: caps}
}

// Collect implements box.Collector. It first ends every program in the box.
func (b *gbox) Collect(ctx context.Context, root string, w io.Writer) error {
	if err := b.RunAgent(ctx, guestAgent(collectCaps[:]), nil, w, "collect", root, fmt.Sprint(b.Spec.Limits.Disk)); err != nil {
		return fmt.Errorf("cannot read files of the box: %w", err)
	}
	return nil
}

// seedsInline is how many bytes of seeds go in with the box's start. gVisor
// holds such an archive in memory; more than this goes in through the agent,
// straight to the disk-backed layer.
const seedsInline = 4 << 20

func (b *gbox) seedBytes() (n int64) {
	for _, s := range b.Spec.Seeds {
		n += s.Size
	}
	return n
}

// place puts large seeds into the started box.
func (b *gbox) place(ctx context.Context) error {
	pr, pw := io.Pipe()
	go func() {
		var err error
		b.Seeded, err = files.BuildSeedTar(pw, b.Spec.Seeds, host.BoxUser, host.BoxUser, nil)
		pw.CloseWithError(err)
	}()
	err := b.RunAgent(ctx, guestAgent(placeCaps[:]), pr, io.Discard, "place", "/")
	pr.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		return fmt.Errorf("cannot put files into the box: %w", err)
	}
	return nil
}
