package gvisor

import (
	"context"
	"fmt"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// pauseTime bounds a pause: the flush, and the moment until every task of the
// guest's is out of what it was at.
const pauseTime = 20 * time.Second

// Pausable implements box.Pauser: the guest's kernel does it on every host.
func (b lastingBox) Pausable() error { return nil }

// Pause implements box.Pauser. The guest's kernel stops its tasks; the runner
// lives, and knows that to whichever front there is.
func (b lastingBox) Pause(ctx context.Context) error { return b.step(ctx, "pause") }

// Resume implements box.Pauser.
func (b lastingBox) Resume(ctx context.Context) error { return b.step(ctx, "resume") }

func (b lastingBox) step(ctx context.Context, op string) error {
	ctx, cancel := context.WithTimeout(ctx, pauseTime)
	defer cancel()
	if err := b.Conn.Call(ctx, op, struct{}{}, nil); err != nil {
		return box.Errorf(box.Unavailable, op+" box", "cannot %s box %s: %w", op, b.Spec.ID, fmt.Errorf("its runner says: %w", err))
	}
	return nil
}
