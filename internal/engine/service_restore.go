package engine

import (
	"context"
	"errors"
	"io"
	"maps"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/snapshot"
)

// origin is what a box is made from, if it is not made anew.
type origin struct {
	tier   box.TierName
	kind   box.SnapshotKind
	reason string // for box.Info
	// open compares it and returns it; the caller closes it.
	open func(context.Context) (*snapshot.Held, error)
}

// checkOrigin refuses a request that says twice what the box shall be.
func checkOrigin(req box.CreateRequest) error {
	switch {
	case req.Template != "" && (req.Snapshot != "" || len(req.Sandbox) > 0):
		return box.Errorf(box.Invalid, "create box", "cannot make a box from a template and by a configuration or snapshot: it is as the template says").
			WithHint("leave out sandbox and snapshot")
	case req.Snapshot == "" || len(req.Sandbox) == 0:
		return nil
	}
	return box.Errorf(box.Invalid, "create box", "cannot make a box from a snapshot and by a configuration: it is that of the snapshot's box").
		WithHint("leave out sandbox, or the flags for limits and files")
}

// createFrom makes a box, from a snapshot if the request names one: then what the
// snapshot's box was asked to be is decided again, by today's rules.
func (s *Service) createFrom(ctx context.Context, c box.Caller, req box.CreateRequest, w Wish) (box.Info, error) {
	switch {
	case req.Template != "":
		return s.createLike(ctx, c, req, w.request)
	case req.Snapshot == "":
		return s.create(ctx, c, req, w)
	}
	kept, err := s.snapshots()
	if err != nil {
		return box.Info{}, err
	}
	r, err := s.cfg.Store.Snapshot(ctx, c.Tenant, req.Snapshot)
	if err != nil {
		return box.Info{}, err
	}
	req.Sandbox = r.Sandbox
	request := w.request
	if w, err = s.wish(c, req); err != nil {
		return box.Info{}, err
	}
	w.request = request
	w.from = &origin{tier: r.Tier, kind: r.Kind, reason: "snapshot " + r.ID, open: func(ctx context.Context) (*snapshot.Held, error) {
		h, err := kept.Open(ctx, r.ID)
		if err == nil && (h.Kind != r.Kind || h.Tier != r.Tier) {
			h.Close()
			return nil, box.Errorf(box.Unusable, "use snapshot", "cannot use snapshot %s: it is not what its row says", r.ID)
		}
		return h, err
	}}
	return s.create(ctx, c, req, w)
}

// start says how a box came to be: warm, or not and why, if that was asked for.
func (o *origin) start(warm bool, miss string) (box.StartKind, string) {
	switch {
	case warm && o != nil:
		return box.StartWarm, o.reason
	case warm:
		return box.StartWarm, ""
	case o == nil:
		return box.StartCold, miss
	case miss != "":
		return box.StartRestored, o.reason + "; " + miss
	}
	return box.StartRestored, o.reason
}

// fits refuses another tier than that of the copy.
func (o *origin) fits(t box.TierName, reason string) error {
	if o == nil || o.tier == t {
		return nil
	}
	return box.Errorf(box.Conflict, "create box", "cannot make a box from the %s: it was made by tier %s, and a box would now be of tier %s (%s)", o.reason, o.tier, t, reason)
}

// namesPart is the part of a copy of a box's memory with the names that its network
// told it: its programs remember the addresses. No tier knows it.
const namesPart = "network"

const maxNames = 8 << 20 // bytes; more than a box can have

// make makes the box, and returns the names that it knows. What is made from a copy
// that somebody can have changed meanwhile is destroyed.
func (o *origin) make(ctx context.Context, t box.Tier, spec box.Spec) (box.Box, []byte, error) {
	if o == nil {
		b, err := t.Create(ctx, spec)
		return b, nil, err
	}
	r, ok := t.(box.Restorer)
	if !ok {
		return nil, nil, box.Errorf(box.Unsupported, "create box", "cannot make a box from a snapshot: tier %s cannot", t.Name())
	}
	h, err := o.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer h.Close()
	copied, names := h.Snapshot, []byte(nil)
	if f := h.Parts[namesPart]; f != nil {
		copied.Parts = maps.Clone(h.Parts)
		delete(copied.Parts, namesPart)
		if names, err = io.ReadAll(io.NewSectionReader(f, 0, maxNames)); err != nil {
			return nil, nil, box.Errorf(box.Unusable, "create box", "cannot read the names in the %s: %w", o.reason, err)
		}
	}
	b, err := r.Restore(ctx, spec, &copied)
	if err != nil {
		return nil, nil, err
	}
	if err := h.Firm(); err != nil {
		return nil, nil, errors.Join(err, destroy(ctx, b))
	}
	return b, names, nil
}

// renewGuest tells a box that goes on that it is a copy, before anybody has it.
func (s *Service) renewGuest(ctx context.Context, id box.ID, g Agent, o *origin) error {
	if o == nil || o.kind != box.SnapshotMemory {
		return nil
	}
	r, ok := g.(box.Renewer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), launchTimeout)
	defer cancel()
	err := r.Renew(ctx, box.Renewal{Copy: true})
	if box.KindOf(err) == box.Unsupported {
		s.cfg.Log.Warn("a copy has the random numbers of its original: its agent cannot renew them", "box", id, "error", err)
		return nil
	}
	return err
}
