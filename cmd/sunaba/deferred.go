package main

import (
	"context"
	"sync"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
	"github.com/sunaba-dev/sunaba/internal/tier/process"
)

// deferred is a tier that is made when it is needed first: a run needs one, and
// making the others would cost as much as a box.
type deferred struct {
	name box.TierName
	make func() (box.Tier, error)
	tier func() (box.Tier, error) // the same, once

	swept sync.Once
}

// Name implements box.Tier.
func (d *deferred) Name() box.TierName { return d.name }

// Probe implements box.Tier.
func (d *deferred) Probe(ctx context.Context) box.Caps {
	t, err := d.tier()
	switch {
	case err == nil:
		return t.Probe(ctx)
	case d.name == box.TierGvisor:
		return gvisor.ProbeWithout(ctx, err)
	default:
		return process.ProbeWithout(ctx, err)
	}
}

// Create implements box.Tier. What killed runs left behind goes before the first
// box. A failure of that is doctor's to tell; it must not keep a new box from
// running.
func (d *deferred) Create(ctx context.Context, spec box.Spec) (box.Box, error) {
	t, err := d.tier()
	if err != nil {
		return nil, err
	}
	d.swept.Do(func() { _, _ = t.Sweep(ctx, func(box.ID) bool { return false }) })
	return t.Create(ctx, spec)
}

// Recover implements box.Tier.
func (d *deferred) Recover(ctx context.Context, id box.ID, state []byte) (box.Box, error) {
	t, err := d.tier()
	if err != nil {
		return nil, err
	}
	return t.Recover(ctx, id, state)
}

// Sweep implements box.Tier.
func (d *deferred) Sweep(ctx context.Context, keep func(box.ID) bool) ([]box.ID, error) {
	t, err := d.tier()
	if err != nil {
		return nil, err
	}
	return t.Sweep(ctx, keep)
}

// SweepLasting implements engine.LastingSweeper.
func (d *deferred) SweepLasting(ctx context.Context, keep func(box.ID) bool) ([]box.ID, error) {
	t, err := d.tier()
	if err != nil {
		return nil, err
	}
	if sw, ok := t.(engine.LastingSweeper); ok {
		return sw.SweepLasting(ctx, keep)
	}
	return nil, nil
}

// Restore implements box.Restorer.
func (d *deferred) Restore(ctx context.Context, spec box.Spec, s *box.Snapshot) (box.Box, error) {
	t, err := d.tier()
	if err != nil {
		return nil, err
	}
	r, ok := t.(box.Restorer)
	if !ok {
		return nil, box.Errorf(box.Unsupported, "create box", "cannot make a box from a snapshot: tier %s cannot", d.name)
	}
	return r.Restore(ctx, spec, s)
}
