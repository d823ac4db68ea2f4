package gvisor

import (
	"context"

	"github.com/sunaba-dev/sunaba/box"
)

// Bind implements box.Binder. The guest's kernel was told at its start how many
// processors there are.
func (b lastingBox) Bind(ctx context.Context, spec box.Spec) error {
	if made, wanted := b.Spec.Limits.Processors(), spec.Limits.Processors(); made != wanted {
		return box.Errorf(box.Unsupported, "bind box", "cannot bind box %s: its kernel shows %d processors since its start, and a cpu limit of %d thousandths is %d",
			b.Spec.ID, made, spec.Limits.MilliCPU, wanted)
	}
	return b.Box.Bind(ctx, spec)
}
