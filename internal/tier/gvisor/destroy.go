package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// Destroy implements box.Box. Killing the runner ends the PID namespace and
// with it every process of the box; its mounts go with the mount namespace and
// its store with the last descriptor. What has a name is removed here.
func (b *gbox) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	var errs []error
	if b.child != nil {
		b.child.Kill()
		select {
		case <-b.child.Done():
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("cannot end box %s: its processes do not die", b.id))
		}
	}
	if b.group != nil {
		errs = append(errs, b.group.Kill(ctx), b.group.Remove(ctx))
	}
	if b.conn != nil {
		b.conn.link.Close()
	}
	if b.store != nil {
		b.store.Close()
	}
	errs = append(errs, removeRunDir(ctx, b.dir))
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

func removeRunDir(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); os.IsNotExist(err) {
		return nil
	}
	return hostfs.RemoveTree(ctx, dir)
}

// Recover implements box.Tier. A box of this tier lives exactly as long as the
// process that made it, so there is never one to take up.
func (t *Tier) Recover(_ context.Context, id box.ID, _ []byte) (box.Box, error) {
	return nil, box.Errorf(box.NotFound, "recover box", "cannot recover box %s: it ended with the process that made it", id)
}

// sweepAge keeps Sweep from a box that is just being made and not locked yet.
const sweepAge = 30 * time.Second

// Sweep implements box.Tier: it removes what killed fronts left behind. A run
// folder is in use while its lock is held.
func (t *Tier) Sweep(ctx context.Context, keep func(box.ID) bool) ([]box.ID, error) {
	var gone []box.ID
	var errs []error
	dir, err := os.ReadDir(t.runDir())
	if err != nil {
		return nil, fmt.Errorf("cannot list run folders: %w", err)
	}
	for _, e := range dir {
		id := box.ID(e.Name())
		path := filepath.Join(t.runDir(), e.Name())
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		if !id.Valid() || keep(id) || host.Locked(path) {
			continue
		}
		if err := t.removeNamed(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, id)
	}
	return gone, errors.Join(errs...)
}

// removeNamed removes what a box without a live front has left under its name.
func (t *Tier) removeNamed(ctx context.Context, id box.ID) error {
	var errs []error
	if t.cfg.Groups != nil {
		if g, err := t.cfg.Groups.Open(string(id)); err == nil {
			errs = append(errs, g.Kill(ctx), g.Remove(ctx))
		}
	}
	errs = append(errs, removeRunDir(ctx, filepath.Join(t.runDir(), string(id))))
	return errors.Join(errs...)
}
