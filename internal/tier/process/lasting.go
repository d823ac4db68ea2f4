package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/cell"
	"github.com/sunaba-dev/sunaba/internal/agent/daemon"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// lastingOverhead is what cell and agent need in the group of a box that lasts,
// beyond the programs' memory.
const lastingOverhead = 48 << 20

func overhead(spec box.Spec) int64 {
	if spec.Lasting {
		return lastingOverhead
	}
	return memoryOverhead
}

// lastingBox implements box.Lasting.
type lastingBox struct{ *pbox }

// kept is the tier's part of a box's state.
type kept struct {
	Path string // the image's PATH
	Cell cell.Ready
	Dev  uint64 // of the store; 0 if it is the box's own tmpfs
	Disk uint32 // who owns the box's files on the store
}

// agentOf adds the agent to a cell's setup, and returns the files that go with
// it: its program, if that is not the cell's, and the extracted image, if there
// is one, which the image store leaves alone as long as somebody holds it.
func (t *Tier) agentOf(s *cell.Setup, b *pbox) ([]*os.File, error) {
	s.Agent = &cell.Agent{
		Argv: []string{daemon.Argv, "serve", b.Spec.Workdir, "handover"},
		Env:  []string{"PATH=" + b.path},
	}
	var files []*os.File
	program, err := t.daemon()
	if err != nil {
		return nil, err
	}
	for _, f := range []*os.File{program, b.tree} {
		if f == nil {
			continue
		}
		d, err := host.Dup(f)
		if err != nil {
			return files, err
		}
		files = append(files, d)
	}
	s.Agent.HasProgram, s.Agent.HasTree = program != nil, b.tree != nil
	return files, nil
}

// keep makes a lasting one of a box.
func (t *Tier) keep(b *pbox) (box.Box, error) {
	k := kept{Path: b.path, Cell: b.cell, Disk: b.disk}
	if b.fs != nil {
		var err error
		if k.Dev, err = device(b.fs); err != nil {
			return nil, err
		}
		b.dev = k.Dev
	}
	if err := b.Keep(t.Name(), k); err != nil {
		return nil, err
	}
	return lastingBox{b}, nil
}

func device(f *os.File) (uint64, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("cannot look at the store: %w", err)
	}
	return uint64(st.Dev), nil
}

// Recover implements box.Tier.
func (t *Tier) Recover(ctx context.Context, id box.ID, state []byte) (box.Box, error) {
	b := &pbox{}
	var k kept
	err := t.Take(ctx, &b.Box, t.Name(), id, state, adapter{b}, &k, func(ctx context.Context) error {
		b.path, b.cell, b.disk, b.dev = k.Path, k.Cell, k.Disk, k.Dev
		if b.Frozen() { // its cell says nothing until it is resumed
			b.asleep = &k
			b.held.Store(true)
			return nil
		}
		return b.takeUp(ctx, k)
	})
	if err != nil {
		_, fs := b.shut()
		closeFS(fs)
		return nil, err
	}
	return lastingBox{b}, nil
}

func closeFS(fs *os.File) {
	if fs != nil {
		fs.Close()
	}
}

// Agent implements box.Lasting.
func (b lastingBox) Agent(ctx context.Context) (net.Conn, error) { return b.Stream(ctx) }

// Detach implements box.Lasting.
func (b lastingBox) Detach() {
	dog, fs := b.shut()
	b.Box.Detach()
	dog.wait()
	closeFS(fs)
	if b.tree != nil {
		b.tree.Close()
	}
}

// tellLasting writes down a limit that the box touched. Where no group bounds the
// box, or what is too much is in nobody's account, it ends: its programs are the
// agent's, and which of them is guilty is not known.
func (w *watchdog) tellLasting(hit box.LimitHit) {
	if hit.Limit == "memory" && hit.Source == watchdogSource {
		w.b.Note(context.Background(), hit)
		w.b.Child.Kill()
		return
	}
	if w.noted == nil {
		w.noted = make(map[string]bool)
	}
	if !w.noted[hit.Limit] {
		w.noted[hit.Limit] = true
		w.b.Note(context.Background(), hit)
	}
}
