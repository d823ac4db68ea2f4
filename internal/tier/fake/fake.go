// Package fake is a tier WITHOUT ANY WALL, for tests of the rooms above tiers.
//
// Its boxes are ordinary processes of this host, with the rights of the test, in
// a temporary folder: whatever runs in them can do whatever the test can. What
// they have of a real box is its life. A lasting box runs the real agent, is
// taken up by another Tier from its State, is destroyed with everything that was
// started in it, and fails in the ways that a test asks for. No program may be
// built with this package; a test here looks for one that is.
//
// Paths are the host's: what Spec.Workdir says is [Tier.Dir] on the host, which
// is where programs start when they name no folder.
package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sunaba-dev/sunaba/box"
)

// Name is the tier's name. It is not one of box.TierNames, so that no
// configuration can ask for it.
const Name box.TierName = "fake"

// Config is what a Tier is made of.
type Config struct {
	// Agent is the path of a built cmd/sunaba-agentd.
	Agent string
	// State is a folder for boxes; other Tiers with the same one can Recover
	// them.
	State string
	// Root lets programs of lasting boxes ask for box.UserRoot. The test has to
	// be root, and the program is it, too.
	Root bool
	// Weak is what boxes say of themselves.
	Weak []string
	// Creating is called before a box is made, and Destroying before one is
	// destroyed, if they are set. An error is returned as it is; what blocks
	// makes the call hang.
	Creating   func(context.Context, box.Spec) error
	Destroying func(context.Context, box.ID) error
}

// Tier implements box.Tier.
type Tier struct {
	cfg Config

	mu    sync.Mutex
	boxes map[box.ID]*Box
}

// New returns a tier. It does nothing yet.
func New(cfg Config) *Tier { return &Tier{cfg: cfg, boxes: map[box.ID]*Box{}} }

// Name implements box.Tier.
func (t *Tier) Name() box.TierName { return Name }

// Probe implements box.Tier.
func (t *Tier) Probe(context.Context) box.Caps {
	return box.Caps{Usable: true, Weak: t.cfg.Weak, Steps: []box.Step{{Name: "walls", State: box.Weak, Detail: "none"}}}
}

// Create implements box.Tier.
func (t *Tier) Create(ctx context.Context, spec box.Spec) (box.Box, error) {
	return t.create(ctx, spec, func(*Box) error { return nil })
}

// create makes a box; fill is called when it has its folders and nothing else.
func (t *Tier) create(ctx context.Context, spec box.Spec, fill func(*Box) error) (box.Box, error) {
	if t.cfg.Creating != nil {
		if err := t.cfg.Creating(ctx, spec); err != nil {
			return nil, err
		}
	}
	b := &Box{tier: t, spec: spec, ended: make(chan struct{})}
	b.st.ID = spec.ID
	if err := b.make(fill); err != nil {
		b.remove()
		return nil, box.Errorf(box.Fault, "create box", "cannot create box: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.boxes[spec.ID] = b
	if !spec.Lasting {
		return b, nil
	}
	return &Lasting{b}, nil
}

// make makes the box's folder with its seeds, and starts the agent.
func (b *Box) make(fill func(*Box) error) error {
	if err := os.Mkdir(b.home(), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(b.work(), 0o755); err != nil {
		return err
	}
	if err := fill(b); err != nil {
		return err
	}
	for _, s := range b.spec.Seeds {
		if err := b.seed(s); err != nil {
			return err
		}
	}
	if !b.spec.Lasting {
		return nil
	}
	return b.start()
}

// Recover implements box.Tier.
func (t *Tier) Recover(_ context.Context, id box.ID, state []byte) (box.Box, error) {
	b := &Box{tier: t, ended: make(chan struct{})}
	if err := b.adopt(id, state); err != nil {
		b.st.ID = id
		b.remove()
		return nil, box.Errorf(box.NotFound, "recover box", "cannot recover box %s: %w", id, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.boxes[id] = b
	return &Lasting{b}, nil
}

// Sweep implements box.Tier.
func (t *Tier) Sweep(ctx context.Context, keep func(box.ID) bool) ([]box.ID, error) {
	entries, err := os.ReadDir(t.cfg.State)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot sweep: %w", err)
	}
	var gone []box.ID
	for _, e := range entries {
		id := box.ID(e.Name())
		if !id.Valid() || keep(id) {
			continue
		}
		b := &Box{tier: t, ended: make(chan struct{})}
		b.st.ID = id
		if state, err := os.ReadFile(filepath.Join(b.home(), stateFile)); err == nil {
			_ = b.adopt(id, state)
		}
		b.remove()
		gone = append(gone, id)
	}
	return gone, nil
}

// Dir is the folder on the host that is the working folder of a box.
func (t *Tier) Dir(id box.ID) string {
	b := Box{tier: t}
	b.st.ID = id
	return b.work()
}

// Kill ends the agent of a lasting box, and with it the box, as a crash would.
func (t *Tier) Kill(id box.ID) {
	t.mu.Lock()
	b := t.boxes[id]
	t.mu.Unlock()
	if b != nil {
		b.kill()
	}
}

// Boxes lists the boxes that this Tier made or took up and that were not
// destroyed.
func (t *Tier) Boxes() []box.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]box.ID, 0, len(t.boxes))
	for id := range t.boxes {
		all = append(all, id)
	}
	return all
}
