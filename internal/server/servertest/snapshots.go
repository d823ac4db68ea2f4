package servertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// snapshot is a copy of a box's files, if it is one of this service's.
type snapshot struct {
	box.SnapshotInfo
	tenant string
	files  map[string]*node
}

// Snapshot implements box.SnapshotService.
func (s *Service) Snapshot(_ context.Context, c box.Caller, id box.ID, req box.SnapshotRequest) (box.SnapshotInfo, error) {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return box.SnapshotInfo{}, err
	}
	g, err := s.find(c, id)
	if err != nil {
		return box.SnapshotInfo{}, err
	}
	if req.Kind == "" {
		req.Kind = box.SnapshotFiles
	}
	files := g.copied()
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Name != "" && slices.ContainsFunc(s.snapshots, func(k snapshot) bool { return k.tenant == c.Tenant && k.Name == req.Name }) {
		return box.SnapshotInfo{}, box.Errorf(box.Conflict, "snapshot box", "cannot keep snapshot as %q: there is one of that name", req.Name)
	}
	s.made++
	k := snapshot{box.SnapshotInfo{ID: fmt.Sprintf("sha256:%064x", s.made), Name: req.Name, Kind: req.Kind, Tier: box.TierProcess, Image: "none", Box: id, Bytes: int64(len(files)), Created: time.Now().UTC()}, c.Tenant, files}
	s.snapshots = append(s.snapshots, k)
	return k.SnapshotInfo, nil
}

// Snapshots implements box.SnapshotService. Its cursor is the last id of the page
// before.
func (s *Service) Snapshots(_ context.Context, c box.Caller, req box.ListSnapshots) ([]box.SnapshotInfo, string, error) {
	if err := s.may(c, box.ScopeRead); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []box.SnapshotInfo
	for _, k := range slices.Backward(s.snapshots) {
		if k.tenant == c.Tenant && (req.Box == "" || k.Box == req.Box) {
			all = append(all, k.SnapshotInfo)
		}
	}
	if req.Cursor != "" {
		at := slices.IndexFunc(all, func(i box.SnapshotInfo) bool { return i.ID == req.Cursor })
		if at < 0 {
			return nil, "", box.Errorf(box.Invalid, "list snapshots", "cannot use this cursor: no page has it")
		}
		all = all[at+1:]
	}
	if limit := req.Limit; limit > 0 && len(all) > limit {
		return all[:limit], all[limit-1].ID, nil
	}
	return all, "", nil
}

// kept finds a snapshot. The lock is held.
func (s *Service) kept(c box.Caller, ref string) (int, error) {
	at := slices.IndexFunc(s.snapshots, func(k snapshot) bool { return k.tenant == c.Tenant && (k.ID == ref || k.Name != "" && k.Name == ref) })
	if at < 0 {
		return 0, box.Errorf(box.NotFound, "find snapshot", "cannot find this snapshot")
	}
	return at, nil
}

// InspectSnapshot implements box.SnapshotService.
func (s *Service) InspectSnapshot(_ context.Context, c box.Caller, ref string) (box.SnapshotInfo, error) {
	if err := s.may(c, box.ScopeRead); err != nil {
		return box.SnapshotInfo{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.kept(c, ref)
	if err != nil {
		return box.SnapshotInfo{}, err
	}
	return s.snapshots[at].SnapshotInfo, nil
}

// DeleteSnapshot implements box.SnapshotService.
func (s *Service) DeleteSnapshot(_ context.Context, c box.Caller, ref string) error {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.kept(c, ref)
	if err == nil {
		s.snapshots = slices.Delete(s.snapshots, at, at+1)
	}
	return err
}

// ForkFails is the count of copies of which the last one fails.
const ForkFails = 3

// Fork implements box.SnapshotService.
func (s *Service) Fork(ctx context.Context, c box.Caller, id box.ID, req box.ForkRequest) ([]box.Forked, error) {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return nil, err
	}
	g, err := s.find(c, id)
	if err != nil {
		return nil, err
	}
	if req.Metadata == nil {
		req.Metadata = g.describe().Metadata
	}
	out := make([]box.Forked, req.Count)
	for i := range out {
		if req.Count == ForkFails && i == ForkFails-1 {
			full := box.Errorf(box.Exhausted, "fork box", "cannot make a copy: the share is used up").WithHint("destroy one")
			full.Retry = time.Second
			out[i].Err = full
			continue
		}
		if out[i].Info, err = s.Create(ctx, c, box.CreateRequest{TTL: req.TTL, Metadata: req.Metadata}); err != nil {
			return nil, err
		}
		made, err := s.find(c, out[i].Info.ID)
		if err != nil {
			return nil, err
		}
		out[i].Info = made.from(g)
	}
	return out, nil
}

// copied is what g has of files.
func (g *Guest) copied() map[string]*node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return copied(g.files)
}

func copied(files map[string]*node) map[string]*node {
	out := map[string]*node{}
	for p, n := range files {
		again := *n
		again.data = slices.Clone(n.data)
		out[p] = &again
	}
	return out
}

// from makes a box a copy of another one.
func (g *Guest) from(other *Guest) box.Info {
	files, id := other.copied(), other.describe().ID
	g.mu.Lock()
	defer g.mu.Unlock()
	g.files = files
	g.info.Start, g.info.StartReason = box.StartRestored, "fork of box "+string(id)
	return g.info
}
