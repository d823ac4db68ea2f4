package fake

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent"
)

// stateFile repeats a lasting box's state, for Sweep.
const stateFile = "state.json"

// Box implements box.Box and box.Collector.
type Box struct {
	tier *Tier
	spec box.Spec
	st   state

	ended     chan struct{} // closed when the agent is gone
	endedOnce sync.Once
	removed   sync.Once
	last      account
}

// home is the box's folder, and work the part of it that programs use.
func (b *Box) home() string { return filepath.Join(b.tier.cfg.State, string(b.st.ID)) }
func (b *Box) work() string { return filepath.Join(b.home(), "work") }

// ID implements box.Box.
func (b *Box) ID() box.ID { return b.st.ID }

// Weak implements box.Box.
func (b *Box) Weak() []string { return b.tier.cfg.Weak }

// Destroy implements box.Box.
func (b *Box) Destroy(ctx context.Context) error {
	if b.tier.cfg.Destroying != nil {
		if err := b.tier.cfg.Destroying(ctx, b.st.ID); err != nil {
			return err
		}
	}
	b.remove()
	return nil
}

// remove ends what runs in the box and removes its folders.
func (b *Box) remove() {
	b.removed.Do(func() {
		b.kill()
		os.RemoveAll(b.home())
		if b.st.Link != "" {
			os.RemoveAll(filepath.Dir(b.st.Link))
		}
		b.tier.mu.Lock()
		defer b.tier.mu.Unlock()
		if b.tier.boxes[b.st.ID] == b {
			delete(b.tier.boxes, b.st.ID)
		}
	})
}

// Collect implements box.Collector.
func (b *Box) Collect(_ context.Context, root string, w io.Writer) error {
	return agent.Collect(w, b.onHost(root), 1<<30)
}

// onHost is where a path in the box is: below the working folder, or the host's.
func (b *Box) onHost(path string) string {
	if rel, ok := strings.CutPrefix(path, b.spec.Workdir); path == "" || ok && b.spec.Workdir != "" && (rel == "" || rel[0] == '/') {
		return filepath.Join(b.work(), rel)
	}
	return path
}

// seed puts a file into the working folder.
func (b *Box) seed(s box.Seed) error {
	to := b.onHost(s.Path)
	for at, c := range strings.TrimPrefix(to, b.work()+"/") {
		if c == '/' {
			_ = os.Mkdir(to[:len(b.work())+1+at], 0o755) // it may be there
		}
	}
	r, err := s.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, s.Mode.Perm())
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := io.Copy(f, r); err != nil {
		return err
	} else if n != s.Size {
		return fmt.Errorf("cannot seed %s: %d bytes instead of %d", s.Path, n, s.Size)
	}
	return nil
}
