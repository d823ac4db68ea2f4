package frame

import (
	"context"
	"fmt"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
)

// Pausable says why the box's group, and with it all of the box, cannot be held.
func (b *Box) Pausable() error {
	if b.Group == nil {
		return box.Errorf(box.Unsupported, "pause box", "cannot pause box %s: no control group holds it on this host", b.Spec.ID).
			WithHint("`sunaba doctor` says what this host lacks; tier gvisor needs no control group for that")
	}
	return b.Group.CanFreeze()
}

// Freeze holds all of the box by its group, its first process with it. A box
// that is being destroyed is let go, so that it can die.
func (b *Box) Freeze(ctx context.Context) error {
	if err := b.Pausable(); err != nil {
		return err
	}
	err := b.Group.Freeze(ctx)
	if err == nil && b.ending.Load() {
		_ = b.Group.Thaw(context.WithoutCancel(ctx)) // Destroy tells if it stays
		return fmt.Errorf("cannot pause box %s: it is being destroyed", b.Spec.ID)
	}
	return err
}

// Frozen reports whether the box is held by its group.
func (b *Box) Frozen() bool { return frozen(b.Group) }

func frozen(g *cgroup.Group) bool {
	if g == nil {
		return false
	}
	is, err := g.Frozen()
	return is && err == nil
}
