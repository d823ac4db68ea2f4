package engine

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/snapshot"
	"github.com/sunaba-dev/sunaba/internal/store"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// snapshotTimeout bounds the time that a box stands still to be copied, and the
// copying.
const snapshotTimeout = 5 * time.Minute

// copyTurns are those of who copies a box: each takes the disk for itself, and the
// box's agent can make it take long.
func copyTurns() tenant.TurnRules { return tenant.TurnRules{All: 3, Each: 2, Line: 64} }

// parker is implemented by agents whose streams can be closed for a while. Calls
// that begin meanwhile wait for Unpark.
type parker interface {
	Park(context.Context) error
	Unpark()
}

// Snapshot implements box.SnapshotService. The files come before the row: a crash
// in between leaves files that no row knows, which the next start removes.
func (s *Service) Snapshot(ctx context.Context, c box.Caller, id box.ID, req box.SnapshotRequest) (box.SnapshotInfo, error) {
	var none box.SnapshotInfo
	if err := c.May(box.ScopeWrite); err != nil {
		return none, err
	}
	if req.Kind == "" {
		req.Kind = box.SnapshotFiles
	}
	switch {
	case req.Kind != box.SnapshotFiles && req.Kind != box.SnapshotMemory:
		return none, box.Errorf(box.Invalid, "snapshot box", "cannot take a snapshot of kind %.40q: allowed are %s and %s", req.Kind, box.SnapshotFiles, box.SnapshotMemory)
	case req.Name != "" && !regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`).MatchString(req.Name):
		return none, box.Errorf(box.Invalid, "snapshot box", "cannot name a snapshot %.80q: allowed are 1 to 64 of a to z, 0 to 9, dot, underscore and hyphen, the first a letter or digit", req.Name)
	}
	l, err := s.find(ctx, c.Tenant, id)
	if err != nil {
		return none, err
	}
	kept, err := s.snapshots()
	if err != nil {
		return none, err
	}
	if _, err := l.snappable(req.Kind); err != nil {
		return none, err
	}
	l.enter() // who waits for a turn uses the box, too
	defer l.leave()
	over, err := s.copies.Take(ctx, c.Tenant)
	if err != nil {
		return none, err
	}
	defer over()
	left, err := s.cfg.Store.RoomForSnapshot(ctx, c.Tenant, req.Name, s.cfg.MaxSnapshots, s.cfg.MaxSnapshotBytes)
	if err != nil {
		return none, err
	}
	r, err := s.cfg.Store.Box(ctx, c.Tenant, id)
	if err != nil {
		return none, err
	}
	d := kept.Begin(min(s.cfg.MaxSnapshot, left))
	defer d.Drop()
	head, err := s.copyOf(ctx, l, req.Kind, d)
	if err != nil {
		return none, err
	}
	row := store.Snapshot{Tenant: c.Tenant, Principal: c.Principal, Sandbox: l.row().Sandbox, SnapshotInfo: box.SnapshotInfo{
		Name: req.Name, Kind: head.Kind, Tier: head.Tier, Image: r.Image, Box: id, Created: now(),
	}}
	if row.ID, row.Bytes, err = d.Keep(head, id, row.Created); err != nil {
		return none, err
	}
	if err := s.cfg.Store.AddSnapshot(context.WithoutCancel(ctx), row, s.cfg.MaxSnapshots, s.cfg.MaxSnapshotBytes); err != nil {
		return none, errors.Join(err, kept.Delete(row.ID))
	}
	fault.Here("engine.snapshot-added")
	s.cfg.Log.InfoContext(ctx, "snapshot kept", "snapshot", row.ID, "kind", row.Kind, "bytes", row.Bytes, "box", id, "tenant", c.Tenant, "principal", c.Principal)
	return row.SnapshotInfo, nil
}

func (s *Service) snapshots() (*snapshot.Store, error) {
	if s.cfg.Snapshots == nil {
		return nil, box.Errorf(box.Unsupported, "use snapshots", "cannot keep snapshots: this service has no place for them")
	}
	return s.cfg.Snapshots, nil
}

// snappable returns what makes a copy of a box, or why nothing does.
func (l *live) snappable(kind box.SnapshotKind) (box.Snapshotter, error) {
	sn, ok := l.box.(box.Snapshotter)
	switch {
	case !ok:
		return nil, box.Errorf(box.Unsupported, "snapshot box", "cannot copy box %s: its tier cannot", l.id)
	case l.kept.Sandbox == nil:
		return nil, box.Errorf(box.Unsupported, "snapshot box", "cannot copy box %s: an earlier version made it, which did not keep what was asked for", l.id).
			WithHint("make a new box")
	}
	return sn, sn.Snappable(kind)
}

// copyOf writes a copy of a box into d. It takes the box's turn, so nobody pauses or
// resumes it meanwhile, and counts as use of it. The caller has a turn of s.copies.
func (s *Service) copyOf(ctx context.Context, l *live, kind box.SnapshotKind, d *snapshot.Draft) (box.SnapshotHead, error) {
	var none box.SnapshotHead
	sn, err := l.snappable(kind)
	if err != nil {
		return none, err
	}
	l.enter()
	defer l.leave()
	release, err := s.take(ctx, l)
	if err != nil {
		return none, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	if l.pausedSince().IsZero() {
		s.hold(ctx, l)
		since := time.Now()
		defer func() { s.goOn(context.WithoutCancel(ctx), l, time.Since(since)) }()
	}
	apart, err := s.apart(ctx, l, kind)
	if err != nil {
		return none, err
	}
	head, err := sn.Snapshot(ctx, kind, d.Put)
	if err == nil && kind == box.SnapshotMemory {
		err = s.keepNames(l, d)
	}
	err = errors.Join(err, apart())
	switch {
	case d.Err() != nil && box.KindOf(d.Err()) != box.Fault:
		return none, d.Err()
	case l.ending.Load():
		return none, (&used{s, l}).ended()
	case err != nil:
		return none, err
	case head.Kind != kind || head.Tier != l.kept.Tier:
		return none, box.Errorf(box.Fault, "snapshot box", "cannot keep the copy of box %s: its tier says that it is another", l.id)
	}
	return head, nil
}

// keepNames writes the names that a box's network told it, if it has one that is up.
func (s *Service) keepNames(l *live, d *snapshot.Draft) error {
	l.network.mu.Lock()
	up := l.network.up
	l.network.mu.Unlock()
	if !up {
		return nil
	}
	names, err := s.cfg.Engine.Egress.Names(l.id)
	if err != nil || len(names) == 0 {
		return err
	}
	return d.Put(namesPart, bytes.NewReader(names))
}

// apart closes the streams of a box's agent for a copy of its memory. The agent has
// to do its part in that, so a box that is paused runs for it. The turn is held.
func (s *Service) apart(ctx context.Context, l *live, kind box.SnapshotKind) (undo func() error, err error) {
	if kind != box.SnapshotMemory {
		return func() error { return nil }, nil
	}
	p, ok := l.guest.(parker)
	if !ok {
		return nil, box.Errorf(box.Unsupported, "snapshot box", "cannot copy the memory of box %s: its agent's streams cannot be closed for a while", l.id)
	}
	still := func() error { return nil }
	if !l.pausedSince().IsZero() {
		pauses, err := pauser(l.box)
		if err == nil {
			err = pauses.Resume(ctx)
		}
		if err != nil {
			return nil, err
		}
		still = func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseTimeout)
			defer cancel()
			return pauses.Pause(ctx)
		}
	}
	if err := p.Park(ctx); err != nil {
		p.Unpark()
		return nil, errors.Join(err, still())
	}
	return func() error { p.Unpark(); return still() }, nil
}

// enter and leave say that a box is in use.
func (l *live) enter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
}

func (l *live) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	l.used = time.Now()
}

// Snapshots implements box.SnapshotService.
func (s *Service) Snapshots(ctx context.Context, c box.Caller, req box.ListSnapshots) ([]box.SnapshotInfo, string, error) {
	if err := c.May(box.ScopeRead); err != nil {
		return nil, "", err
	}
	if req.Limit < 0 || req.Limit > pageMost {
		return nil, "", box.Errorf(box.Invalid, "list snapshots", "cannot list %d snapshots: allowed are 1 to %d", req.Limit, pageMost)
	}
	n := req.Limit
	if n == 0 {
		n = pageDefault
	}
	before, err := snapshotPlace(req.Cursor)
	if err != nil {
		return nil, "", err
	}
	rows, err := s.cfg.Store.Snapshots(ctx, c.Tenant, req.Box, before, n+1)
	if err != nil {
		return nil, "", err
	}
	out, next := []box.SnapshotInfo{}, ""
	for i, r := range rows {
		if i == n {
			last := rows[n-1]
			next = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", last.Created.UnixMilli(), last.ID))
			break
		}
		out = append(out, r.SnapshotInfo)
	}
	return out, next, nil
}

func snapshotPlace(cursor string) (p store.Before, err error) {
	if cursor == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	var ms int64
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%d %s", &ms, &p.ID)
	}
	if err != nil || strings.Count(string(b), " ") != 1 {
		return p, box.Errorf(box.Invalid, "list snapshots", "cannot use cursor %.60q: it is not one that a page gave", cursor)
	}
	p.Created = time.UnixMilli(ms).UTC()
	return p, nil
}

// InspectSnapshot implements box.SnapshotService. Of one whose files are gone it
// says so, as Unusable.
func (s *Service) InspectSnapshot(ctx context.Context, c box.Caller, ref string) (box.SnapshotInfo, error) {
	if err := c.May(box.ScopeRead); err != nil {
		return box.SnapshotInfo{}, err
	}
	r, err := s.cfg.Store.Snapshot(ctx, c.Tenant, ref)
	if err != nil {
		return box.SnapshotInfo{}, err
	}
	kept, err := s.snapshots()
	if err == nil {
		err = kept.Glance(r.ID)
	}
	if err != nil {
		return box.SnapshotInfo{}, err
	}
	return r.SnapshotInfo, nil
}

// DeleteSnapshot implements box.SnapshotService.
func (s *Service) DeleteSnapshot(ctx context.Context, c box.Caller, ref string) error {
	if err := c.May(box.ScopeWrite); err != nil {
		return err
	}
	r, err := s.cfg.Store.ForgetSnapshot(ctx, c.Tenant, ref)
	if err != nil {
		return err
	}
	fault.Here("engine.snapshot-removed")
	s.cfg.Log.InfoContext(ctx, "snapshot deleted", "snapshot", r.ID, "tenant", c.Tenant, "principal", c.Principal)
	kept, err := s.snapshots()
	if err == nil {
		err = kept.Delete(r.ID)
	}
	if err != nil { // it is nobody's any more, and the next start removes it
		s.cfg.Log.Error("cannot remove the files of a snapshot", "snapshot", r.ID, "error", err)
	}
	return nil
}

// sweepSnapshots removes what no row knows, at a start.
func (s *Service) sweepSnapshots(ctx context.Context) error {
	if s.cfg.Snapshots == nil {
		return nil
	}
	ids, err := s.cfg.Store.SnapshotIDs(ctx)
	if err != nil {
		return err
	}
	removed, err := s.cfg.Snapshots.Sweep(func(id string) bool { return ids[id] })
	for _, name := range removed {
		s.cfg.Log.Warn("file of a snapshot removed that nobody owns", "file", name)
	}
	if err != nil { // it is told again by whoever uses that snapshot
		s.cfg.Log.Error("snapshots are damaged", "error", err)
	}
	return nil
}

// bare is what a row keeps of a box that is no more, without what may hold keys.
func bare(spec []byte) []byte {
	var k kept
	if json.Unmarshal(spec, &k) != nil {
		return nil
	}
	k.Env, k.Sandbox = nil, nil
	out, err := json.Marshal(k)
	if err != nil {
		return nil
	}
	return out
}
