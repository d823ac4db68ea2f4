package engine

import (
	"context"
	"sync"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/snapshot"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

const (
	maxFork      = 100
	forksStarted = 4 // copies of one fork being made at once
)

// forkTurns are those of who makes boxes of a copy, which each holds on the disk.
func forkTurns() tenant.TurnRules { return tenant.TurnRules{All: 4, Each: 3, Line: 64} }

// Fork implements box.SnapshotService. The copy that all are made from has no name
// and no row: whatever happens, nothing of it stays.
func (s *Service) Fork(ctx context.Context, c box.Caller, id box.ID, req box.ForkRequest) ([]box.Forked, error) {
	if err := c.May(box.ScopeWrite); err != nil {
		return nil, err
	}
	if req.Count < 1 || req.Count > maxFork {
		return nil, box.Errorf(box.Invalid, "fork box", "cannot fork %d times: allowed are 1 to %d", req.Count, maxFork)
	}
	l, err := s.find(ctx, c.Tenant, id)
	if err != nil {
		return nil, err
	}
	kept, err := s.snapshots()
	if err != nil {
		return nil, err
	}
	each := box.CreateRequest{Sandbox: l.row().Sandbox, Metadata: req.Metadata, TTL: req.TTL, Idle: l.kept.Idle, OnIdle: l.kept.OnIdle}
	if each.Metadata == nil {
		r, err := s.cfg.Store.Box(ctx, c.Tenant, id)
		if err != nil {
			return nil, err
		}
		each.Metadata = r.Metadata
	}
	if _, err := s.wish(c, each); err != nil {
		return nil, err
	}
	if _, err := l.snappable(box.SnapshotMemory); err != nil {
		return nil, err
	}
	l.enter()
	defer l.leave()
	over, err := s.forks.Take(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	defer over()
	d := kept.Pass(s.cfg.MaxSnapshot)
	defer d.Drop()
	turn, err := s.copies.Take(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	head, err := s.copyOf(ctx, l, box.SnapshotMemory, d)
	turn()
	if err != nil {
		return nil, err
	}
	held, err := d.Held(head)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	fault.Here("engine.fork-copied")
	from := &origin{tier: head.Tier, kind: head.Kind, reason: "fork of box " + string(id), open: func(context.Context) (*snapshot.Held, error) { return held.Copy() }}
	out := make([]box.Forked, req.Count)
	slots := make(chan struct{}, forksStarted)
	var all sync.WaitGroup
	for i := range out {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			out[i].Info, out[i].Err = s.copied(ctx, c, each, from)
		})
	}
	all.Wait()
	return out, nil
}

// copied makes one copy, which enters its tenant's share as any other box.
func (s *Service) copied(ctx context.Context, c box.Caller, req box.CreateRequest, from *origin) (box.Info, error) {
	if err := ctx.Err(); err != nil {
		return box.Info{}, err
	}
	w, err := s.wish(c, req)
	if err != nil {
		return box.Info{}, err
	}
	w.from = from
	return s.create(ctx, c, req, w)
}
