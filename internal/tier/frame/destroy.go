package frame

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sunaba-dev/sunaba/box"
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
	if b.Child != nil {
		b.Child.Kill()
		select {
		case <-b.Child.Done():
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("cannot end box %s: its processes do not die", b.Spec.ID))
		}
	}
	if b.Conn != nil {
		b.Conn.Close()
	}
	errs = append(errs, Together(func() error {
		if b.Store != nil {
			b.Store.Close()
		}
		return janitor.RemoveRunDir(ctx, b.Dir)
	}, func() error { return removeGroup(ctx, b.Group) }))
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
// folder is in use while its lock is held.
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
