package gvisor

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// lastingOverhead is what a group of a box that lasts has beyond the guest's
// memory: that of every box, and room for what a program takes between the
// moment when it is over the limit and its end. Measured: see docs/adr.
const lastingOverhead = 128 << 20

func overhead(spec box.Spec) int64 {
	if spec.Lasting {
		return lastingOverhead
	}
	return memoryOverhead
}

// lastingBox implements box.Lasting.
type lastingBox struct{ *gbox }

// kept is the tier's part of a box's state.
type kept struct {
	Path     string // the image's PATH
	Dev, Ino uint64 // of the store
	Versions versions
}

// openStream makes the stream that the agent finds at its start, and returns its
// end of it.
func (b *gbox) openStream() (*os.File, error) {
	ours, theirs, err := host.StreamPair()
	if err != nil {
		return nil, err
	}
	c, err := host.StreamConn(ours)
	if err != nil {
		theirs.Close()
		return nil, err
	}
	b.stream.Store(&c)
	return theirs, nil
}

// keep makes a lasting one of a box.
func (t *Tier) keep(b *gbox) (box.Box, error) {
	k := kept{Path: b.path, Versions: b.versions}
	var err error
	if k.Dev, k.Ino, err = inode(b.Store); err != nil {
		return nil, err
	}
	if err := b.Keep(t.Name(), k); err != nil {
		return nil, err
	}
	return lastingBox{b}, nil
}

func inode(f *os.File) (dev, ino uint64, err error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, fmt.Errorf("cannot look at the store: %w", err)
	}
	return uint64(st.Dev), st.Ino, nil
}

// Recover implements box.Tier.
func (t *Tier) Recover(ctx context.Context, id box.ID, state []byte) (box.Box, error) {
	b := &gbox{}
	var k kept
	err := t.Take(ctx, &b.Box, t.Name(), id, state, adapter{b}, &k, func(ctx context.Context) error {
		b.path, b.versions = k.Path, k.Versions
		ends, err := b.Conn.CallForFiles(ctx, 1, "store", struct{}{}, nil)
		if err != nil {
			return fmt.Errorf("cannot get its store: %w", err)
		}
		b.Store = ends[0]
		dev, ino, err := inode(b.Store)
		if err == nil && (dev != k.Dev || ino != k.Ino) {
			err = fmt.Errorf("cannot use its store: what came is another file")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return lastingBox{b}, nil
}

// Agent implements box.Lasting. The first stream is the one that the agent was
// started with; further ones are made by a connector in the guest.
func (b lastingBox) Agent(ctx context.Context) (net.Conn, error) {
	if c := b.stream.Swap(nil); c != nil {
		return *c, nil
	}
	return b.Stream(ctx)
}

// Detach implements box.Lasting.
func (b lastingBox) Detach() {
	b.closeStream()
	b.Box.Detach()
}

func (b *gbox) closeStream() {
	if c := b.stream.Swap(nil); c != nil {
		(*c).Close()
	}
}

// Destroy implements box.Box.
func (b *gbox) Destroy(ctx context.Context) error {
	b.closeStream()
	return b.Box.Destroy(ctx)
}
