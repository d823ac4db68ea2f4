package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/store"
	"github.com/sunaba-dev/sunaba/internal/tenant"
	"github.com/sunaba-dev/sunaba/internal/volume"
)

// volumeTurns are those of who makes volumes: each writes its room into the tables of
// the disk. One of a tenant at a time, since what it may have is looked at before.
func volumeTurns() tenant.TurnRules { return tenant.TurnRules{All: 2, Each: 1, Line: 64} }

// volumeKey names a volume.
type volumeKey struct{ tenant, name string }

// holders knows which boxes have which volumes. It is there for words and for the
// order of things in this process: that nobody has more than he may is seen to by the
// lock of the volume's file.
type holders struct {
	mu   sync.Mutex
	busy map[volumeKey]bool            // it is being made or deleted
	has  map[volumeKey]map[box.ID]bool // true = for reading
}

func newHolders() *holders {
	return &holders{busy: map[volumeKey]bool{}, has: map[volumeKey]map[box.ID]bool{}}
}

// alone keeps boxes from a volume that none has, until done is called.
func (h *holders) alone(k volumeKey, what string) (done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[k] {
		return nil, busyVolume(k)
	}
	if by := h.has[k]; len(by) > 0 {
		return nil, box.Errorf(box.Conflict, "use volume", "cannot %s volume %q: %s", what, k.name, hadBy(by)).
			WithHint("destroy the box, or wait for its end")
	}
	h.busy[k] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.busy, k)
	}, nil
}

func busyVolume(k volumeKey) error {
	e := box.Errorf(box.Unavailable, "use volume", "cannot use volume %q yet: it is being made or deleted", k.name)
	e.Retry = time.Second
	return e
}

// hadBy names the boxes.
func hadBy(by map[box.ID]bool) string {
	ids := sorted(by)
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	const most = 3
	if len(words) > most {
		words = append(words[:most], fmt.Sprintf("and %d more", len(ids)-most))
	}
	if len(ids) == 1 {
		return "box " + words[0] + " has it"
	}
	return "boxes " + strings.Join(words, ", ") + " have it"
}

func sorted(by map[box.ID]bool) []box.ID {
	ids := []box.ID{}
	for id := range by {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// take notes that a box is to have a volume.
func (h *holders) take(k volumeKey, id box.ID, readOnly bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[k] {
		return busyVolume(k)
	}
	for _, reads := range h.has[k] {
		if reads && readOnly {
			continue
		}
		e := box.Errorf(box.Conflict, "use volume", "cannot use volume %q: %s, and one box may write or any number read", k.name, hadBy(h.has[k]))
		return e.WithHint("destroy that box; or have it read-only in all of them")
	}
	h.put(k, id, readOnly)
	return nil
}

// put notes it whoever else has it. The lock is held.
func (h *holders) put(k volumeKey, id box.ID, readOnly bool) {
	if h.has[k] == nil {
		h.has[k] = map[box.ID]bool{}
	}
	h.has[k][id] = readOnly
}

// keep notes what a box of an earlier daemon has.
func (h *holders) keep(tenant string, id box.ID, all []box.Volume) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range all {
		h.put(volumeKey{tenant, v.Name}, id, v.ReadOnly)
	}
}

// drop notes that a box has none any more.
func (h *holders) drop(id box.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, by := range h.has {
		if delete(by, id); len(by) == 0 {
			delete(h.has, k)
		}
	}
}

func (h *holders) of(k volumeKey) []box.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return sorted(h.has[k])
}

// volumes returns the place for them, or why there is none.
func (s *Service) volumes() (*volume.Store, error) {
	if s.cfg.Volumes == nil {
		return nil, box.Errorf(box.Unsupported, "use volume", "cannot use volumes: this service has no place for them").
			WithHint("a daemon (`sunaba serve`) keeps them")
	}
	return s.cfg.Volumes, s.cfg.Volumes.Usable()
}

// attach opens the volumes of a box that is about to be made. Done closes them: the
// box's kernel has them then, or nobody. What the box has is noted until letGo.
func (s *Service) attach(ctx context.Context, tenant string, id box.ID, wanted []box.Volume) (opened []box.Volume, done func(), err error) {
	var files []*os.File
	done = func() {
		for _, f := range files {
			f.Close()
		}
	}
	if len(wanted) == 0 {
		return nil, done, nil
	}
	defer func() {
		if err != nil {
			done()
			s.holders.drop(id)
		}
	}()
	kept, err := s.volumes()
	if err != nil {
		return nil, done, err
	}
	for _, v := range wanted {
		if err := s.holders.take(volumeKey{tenant, v.Name}, id, v.ReadOnly); err != nil {
			// Whose it is comes before who has it.
			if _, none := s.cfg.Store.Volume(ctx, tenant, v.Name); none != nil {
				err = none
			}
			return nil, done, err
		}
		row, err := s.cfg.Store.Volume(ctx, tenant, v.Name)
		if err != nil {
			return nil, done, err
		}
		if v.Image, err = kept.Take(ctx, row.File, row.Bytes, v.ReadOnly); err != nil {
			if box.KindOf(err) == box.Unusable { // it is the operator's to see to
				s.cfg.Log.ErrorContext(ctx, "a volume cannot be used", "volume", v.Name, "tenant", tenant, "file", row.File, "error", err)
			}
			return nil, done, withVolume(v.Name, err)
		}
		opened, files = append(opened, v), append(files, v.Image)
	}
	return opened, done, nil
}

// withVolume puts the name into an error of the place for volumes, which knows none.
func withVolume(name string, err error) error {
	known, ok := errors.AsType[*box.Error](err)
	if !ok {
		return fmt.Errorf("cannot use volume %q: %w", name, err)
	}
	e := *known
	e.Message = strings.Replace(e.Message, "use volume:", fmt.Sprintf("use volume %q:", name), 1)
	return &e
}

// letGo notes that a box has no volumes any more, when its kernel has written out
// what it had. It is called when nothing of the box is left.
func (s *Service) letGo(ctx context.Context, tenant string, id box.ID, had []box.Volume) {
	for _, v := range had {
		if v.ReadOnly || s.cfg.Volumes == nil {
			continue
		}
		row, err := s.cfg.Store.Volume(ctx, tenant, v.Name)
		if err == nil {
			err = s.cfg.Volumes.Settle(ctx, row.File)
		}
		if err != nil { // whoever has it next waits, too
			s.cfg.Log.WarnContext(ctx, "a volume is not written out yet", "volume", v.Name, "tenant", tenant, "box", id, "error", err)
		}
	}
	s.holders.drop(id)
}

// holdVolumes notes which boxes of an earlier daemon have which, before anybody
// else may.
func (s *Service) holdVolumes(rows []box.Record) {
	for _, r := range rows {
		var k kept
		if json.Unmarshal(r.Spec, &k) == nil {
			s.holders.keep(r.Tenant, r.ID, k.Volumes)
		}
	}
}

// sweepVolumes puts right what a crash left, at a start.
func (s *Service) sweepVolumes(ctx context.Context) error {
	if s.cfg.Volumes == nil {
		return nil
	}
	rows, err := s.cfg.Store.Volumes(ctx, "")
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, r := range rows {
		known[r.File] = true
	}
	removed, strange, err := s.cfg.Volumes.Sweep(func(file string) bool { return known[file] })
	for _, name := range removed {
		s.cfg.Log.Warn("file of a volume removed that nobody owns", "file", name)
	}
	for _, name := range strange {
		s.cfg.Log.Warn("file among the volumes left that nobody owns: the database may be an older one", "file", name)
	}
	return err
}

func (s *Service) volumeInfo(v store.Volume) box.VolumeInfo {
	return box.VolumeInfo{
		Name: v.Name, Bytes: v.Bytes, Used: s.cfg.Volumes.Allocated(v.File), Boxes: s.holders.of(volumeKey{v.Tenant, v.Name}), Created: v.Created,
	}
}

// CreateVolume implements box.VolumeService. The file comes first, whole; then the
// row; then the file's name.
func (s *Service) CreateVolume(ctx context.Context, c box.Caller, name string, bytes int64) (box.VolumeInfo, error) {
	var none box.VolumeInfo
	if err := c.May(box.ScopeWrite); err != nil {
		return none, err
	}
	if err := policy.CheckVolumeName(name); err != nil {
		return none, box.Errorf(box.Invalid, "make volume", "cannot make volume %.80q: %w", name, err)
	}
	kept, err := s.volumes()
	if err != nil {
		return none, err
	}
	k := volumeKey{c.Tenant, name}
	done, err := s.holders.alone(k, "make")
	if box.KindOf(err) == box.Unavailable {
		return none, err
	}
	if err == nil {
		defer done()
	}
	row, err := s.cfg.Store.Volume(ctx, c.Tenant, name)
	switch {
	case err == nil && row.Bytes == bytes:
		return s.volumeInfo(row), nil
	case err == nil:
		return none, box.Errorf(box.Conflict, "make volume", "cannot make volume %q of %d bytes: there is one of that name, of %d bytes", name, bytes, row.Bytes).
			WithHint("choose another name, or delete that one")
	case box.KindOf(err) != box.NotFound:
		return none, err
	}
	row = store.Volume{Tenant: c.Tenant, Name: name, Principal: c.Principal, File: volume.NewFile(), Bytes: bytes, Created: now()}
	over, err := s.makes.Take(ctx, c.Tenant)
	if err != nil {
		return none, err
	}
	defer over()
	if err := s.cfg.Store.RoomForVolume(ctx, row, s.cfg.MaxVolumes, s.cfg.MaxVolumeBytes); err != nil {
		return none, err
	}
	if err := kept.Make(row.File, bytes); err != nil {
		return none, err
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.cfg.Store.AddVolume(ctx, row, s.cfg.MaxVolumes, s.cfg.MaxVolumeBytes); err != nil {
		return none, errors.Join(err, kept.Remove(row.File))
	}
	fault.Here("engine.volume-added")
	if err := kept.Name(row.File); err != nil {
		return none, errors.Join(err, s.cfg.Store.ForgetVolume(ctx, row), kept.Remove(row.File))
	}
	s.cfg.Log.InfoContext(ctx, "volume made", "volume", name, "file", row.File, "bytes", bytes, "tenant", c.Tenant, "principal", c.Principal)
	return s.volumeInfo(row), nil
}

// Volumes implements box.VolumeService.
func (s *Service) Volumes(ctx context.Context, c box.Caller) ([]box.VolumeInfo, error) {
	if err := c.May(box.ScopeRead); err != nil {
		return nil, err
	}
	out := []box.VolumeInfo{}
	if _, err := s.volumes(); err != nil {
		return nil, err
	}
	rows, err := s.cfg.Store.Volumes(ctx, c.Tenant)
	for _, r := range rows {
		out = append(out, s.volumeInfo(r))
	}
	return out, err
}

// InspectVolume implements box.VolumeService.
func (s *Service) InspectVolume(ctx context.Context, c box.Caller, name string) (box.VolumeInfo, error) {
	if err := c.May(box.ScopeRead); err != nil {
		return box.VolumeInfo{}, err
	}
	if _, err := s.volumes(); err != nil {
		return box.VolumeInfo{}, err
	}
	row, err := s.cfg.Store.Volume(ctx, c.Tenant, name)
	if err != nil {
		return box.VolumeInfo{}, err
	}
	return s.volumeInfo(row), nil
}

// DeleteVolume implements box.VolumeService. The file loses its name first, under its
// lock; then the row goes; then the file.
func (s *Service) DeleteVolume(ctx context.Context, c box.Caller, name string) error {
	if err := c.May(box.ScopeWrite); err != nil {
		return err
	}
	kept, err := s.volumes()
	if err != nil {
		return err
	}
	row, err := s.cfg.Store.Volume(ctx, c.Tenant, name)
	if err != nil {
		return err
	}
	done, err := s.holders.alone(volumeKey{c.Tenant, name}, "delete")
	if err != nil {
		return err
	}
	defer done()
	if row, err = s.cfg.Store.Volume(ctx, c.Tenant, name); err != nil { // it may be another by now
		return err
	}
	lock, err := kept.Lock(ctx, row.File)
	if err != nil {
		return withVolume(name, err)
	}
	if lock != nil { // else its file is gone, which is no reason to keep the row
		defer lock.Close()
		if err := kept.Doom(row.File); err != nil {
			return err
		}
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.cfg.Store.ForgetVolume(ctx, row); err != nil {
		return errors.Join(err, kept.Spare(row.File))
	}
	fault.Here("engine.volume-forgotten")
	s.cfg.Log.InfoContext(ctx, "volume deleted", "volume", name, "bytes", row.Bytes, "tenant", c.Tenant, "principal", c.Principal)
	if err := kept.Remove(row.File); err != nil { // it is nobody's any more, and the next start removes it
		s.cfg.Log.Error("cannot remove the file of a volume", "volume", name, "error", err)
	}
	return nil
}
