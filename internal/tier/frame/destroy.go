package frame

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/cgroup"
	"github.com/sunaba-dev/sunaba/internal/tier/frame/janitor"
)

// Destroy implements box.Box. Killing the runner ends the PID namespace and
// with it every process of the box; its mounts go with the mount namespace and
// its store with the last descriptor. What has a name is removed here.
func (b *Box) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	var errs []error
	b.ending.Store(true)
	if b.Child != nil {
		errs = append(errs, endFirst(ctx, b.Spec.ID, b.Child, b.Group))
	}
	b.dropVolumes()
	fault.Here("frame.first-ended")
	if b.Conn != nil {
		b.Conn.Close()
	}
	if b.Spec.Lasting {
		errs = append(errs, b.removeLasting(ctx))
	} else {
		errs = append(errs, Together(func() error {
			if b.Store != nil {
				b.Store.Close()
			}
			return removeDir(ctx, b.Dir)
		}, func() error { return removeGroup(ctx, b.Group) }))
	}
	if b.lock != nil {
		b.lock.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if b.guard != nil {
		b.guard.dismiss()
	}
	return nil
}

// aloneTime is how long the first process has to die before all others are ended
// with it. It takes milliseconds; but it dies on its own time, and the programs
// that keep it from having any (sched_setscheduler(2), SCHED_IDLE) die after it.
const aloneTime = 500 * time.Millisecond

// endFirst ends a box's first process, and with it the box's PID namespace.
func endFirst(ctx context.Context, id box.ID, first *host.Child, g *cgroup.Group) error {
	first.Kill()
	alone := aloneTime
	if frozen(g) { // in version 1 it does not die of that
		alone = 0
	}
	select {
	case <-first.Done():
		return nil
	case <-ctx.Done():
	case <-time.After(alone):
	}
	var err error
	if g != nil {
		err = g.Kill(ctx)
	}
	select {
	case <-first.Done():
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("cannot end box %s: its processes do not die: %w", id, ctx.Err()), err)
	}
}

// removeLasting removes what a box that lasts has a name for: its folder last,
// since by that it is found.
func (b *Box) removeLasting(ctx context.Context) error {
	if b.Store != nil {
		b.Store.Close()
	}
	if err := removeGroup(ctx, b.Group); err != nil {
		return err
	}
	fault.Here("frame.group-removed")
	if b.Child != nil {
		b.Child.Release()
	}
	if b.home == "" {
		return nil
	}
	err := removeDir(ctx, b.home)
	fault.Here("frame.removed")
	return err
}

func removeDir(ctx context.Context, dir string) error { return janitor.RemoveRunDir(ctx, dir) }

// removeGroup removes a group, which is empty as a rule: what is in it ended
// with the box's PID namespace. If it is not, all in it is killed.
func removeGroup(ctx context.Context, g *cgroup.Group) error {
	if g == nil {
		return nil
	}
	once, cancel := context.WithCancel(ctx)
	cancel() // it is not to wait
	if g.Remove(once) == nil {
		return nil
	}
	return errors.Join(g.Kill(ctx), g.Remove(ctx))
}

// sweepAge keeps Sweep from a box that is just being made and not locked yet.
const sweepAge = 30 * time.Second

// Sweep implements box.Tier: it removes what killed fronts left behind. A run
// folder is in use while its lock is held. Boxes that last are the business of
// the one process that owns them: see SweepLasting.
func (s *Site) Sweep(ctx context.Context, keep func(box.ID) bool) ([]box.ID, error) {
	var gone []box.ID
	var errs []error
	dir, err := os.ReadDir(s.RunDir())
	if err != nil {
		return nil, fmt.Errorf("cannot list run folders: %w", err)
	}
	for _, e := range dir {
		id := box.ID(e.Name())
		path := filepath.Join(s.RunDir(), e.Name())
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		if !id.Valid() || keep(id) || host.Locked(path) {
			continue
		}
		if err := janitor.Remove(ctx, s.Groups, s.State, id); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, id)
	}
	return gone, errors.Join(errs...)
}

// SweepLasting destroys the boxes that last for which keep is false, of whatever
// tier they are, and returns their names. It is for the one process that owns
// those of this site.
func (s *Site) SweepLasting(ctx context.Context, keep func(box.ID) bool) ([]box.ID, error) {
	dir, err := os.ReadDir(s.LastingDir())
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("cannot list boxes: %w", err)
	}
	var gone []box.ID
	var errs []error
	for _, e := range dir {
		id := box.ID(e.Name())
		if !id.Valid() || keep(id) {
			continue
		}
		if err := s.drop(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, id)
	}
	return gone, errors.Join(errs...)
}
