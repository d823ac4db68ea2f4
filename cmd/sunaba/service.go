package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/guest"
	"github.com/sunaba-dev/sunaba/internal/egress/keeper"
	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/snapshot"
	"github.com/sunaba-dev/sunaba/internal/store"
	"github.com/sunaba-dev/sunaba/internal/tenant"
	"github.com/sunaba-dev/sunaba/internal/volume"
)

// serviceOptions say what a service of boxes that last is made of.
type serviceOptions struct {
	state      string // folder of its boxes and its database
	images     string // folder that root file systems are kept in
	rules      tenant.Rules
	ttl        time.Duration
	maxTTL     time.Duration
	maxPaused  time.Duration // 0 = for ever
	mountRoots []string
	bounds     networkBounds // of the rules in requests
	snapshots  snapshotBounds
	volumes    *volumeBounds // nil = none are kept
	warm       int           // boxes for requests that reuse
	templates  []engine.Template
	resolvers  []netip.AddrPort // instead of the host's
	log        *slog.Logger
}

// defaultWarm is how many boxes are kept warm if nobody says otherwise: some ten
// MiB each.
const defaultWarm = 8

// defaultRules bound what one tenant may have, and how many boxes are made at once.
func defaultRules() tenant.Rules {
	return tenant.Rules{
		Share:  tenant.Amounts{Boxes: 100},
		Starts: 2 * runtime.NumCPU(),
		Line:   64,
		Wait:   30 * time.Second,
	}
}

// service is a running service and what it stands on.
type service struct {
	*engine.Service
	store     *store.Store
	snapshots *snapshot.Store
	volumes   *volume.Store // nil = none
	keeper    *keeper.Keeper
}

// Close gives the boxes up. They live on, without a network until somebody takes
// them up again.
func (s *service) Close() error {
	err := s.Service.Close()
	if s.volumes != nil {
		err = errors.Join(err, s.volumes.Close())
	}
	return errors.Join(err, s.keeper.Close(), s.snapshots.Close(), s.store.Close())
}

// snapshotBounds are what one tenant may keep of its boxes.
type snapshotBounds struct {
	bytes    int64 // of one
	count    int   // 0 = no bound
	together int64 // bytes of all
}

func defaultSnapshots() snapshotBounds {
	return snapshotBounds{bytes: 8 << 30, count: 100, together: 64 << 30}
}

// volumeBounds are what one tenant may keep in volumes.
type volumeBounds struct {
	bytes int64 // together; 0 = no bound
	count int   // 0 = no bound
}

func defaultVolumes() volumeBounds { return volumeBounds{bytes: 64 << 30, count: 100} }

// newService starts a service. It is the only one in its folder.
func newService(ctx context.Context, o serviceOptions) (*service, error) {
	st, err := store.Open(ctx, o.state)
	if err != nil {
		return nil, err
	}
	snaps, err := snapshot.Open(filepath.Join(o.state, "snapshots"))
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	var vols *volume.Store
	bounds := volumeBounds{}
	if o.volumes != nil {
		bounds = *o.volumes
		if vols, err = volume.Open(filepath.Join(o.state, "volumes")); err != nil {
			return nil, errors.Join(err, snaps.Close(), st.Close())
		}
	}
	ledgers, err := ledger.OpenFolder(filepath.Join(o.state, "network"))
	if err != nil {
		return nil, errors.Join(err, snaps.Close(), st.Close())
	}
	e := newEngine(o.state, common{imageDir: o.images, debug: os.Getenv("SUNABA_DEBUG")})
	gateway := newKeeper(o.resolvers, ledgers, o.log)
	e.Egress = gateway
	s, err := engine.Start(ctx, engine.Config{
		Engine: e,
		Store:  st,
		Gate:   tenant.NewGate(o.rules),
		Parse:  func(sandbox json.RawMessage) (engine.Wish, error) { return wishOf(sandbox, o.bounds) },
		Guest: func(dial func(context.Context) (net.Conn, error)) engine.Agent {
			return guest.New(dial, guest.Options{})
		},
		MountRoots:       o.mountRoots,
		Snapshots:        snaps,
		MaxSnapshot:      o.snapshots.bytes,
		MaxSnapshots:     o.snapshots.count,
		MaxSnapshotBytes: o.snapshots.together,
		Volumes:          vols,
		MaxVolumes:       bounds.count,
		MaxVolumeBytes:   bounds.bytes,
		Warm:             o.warm,
		Templates:        o.templates,
		TTL:              o.ttl,
		MaxTTL:           o.maxTTL,
		MaxPaused:        o.maxPaused,
		Log:              o.log,
	})
	if err != nil {
		if vols != nil {
			err = errors.Join(err, vols.Close())
		}
		return nil, errors.Join(err, gateway.Close(), snaps.Close(), st.Close())
	}
	return &service{s, st, snaps, vols, gateway}, nil
}

// clientSession is a service for one client, in a folder of its own: its boxes end
// with it.
type clientSession struct {
	*service
	dir string
}

// newSession starts one below the state folder, after clearing up after those
// that were killed.
func newSession(ctx context.Context, stateFlag string, resolvers []netip.AddrPort, log *slog.Logger) (*clientSession, error) {
	state, err := stateDir(stateFlag)
	if err != nil {
		return nil, err
	}
	all := filepath.Join(state, "sessions")
	if err := os.Mkdir(all, 0o711); err != nil && !os.IsExist(err) {
		return nil, box.Errorf(box.Unusable, "start session", "cannot make folder for sessions: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(all, "s*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range old {
		if s, err := openSession(ctx, state, dir, nil, log); err == nil { // else it is somebody's
			err = s.Close(ctx)
			if err != nil {
				log.Warn("cannot clear an old session", "folder", dir, "error", err)
			}
		}
	}
	dir := filepath.Join(all, "s"+string(box.NewID())[2:])
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, box.Errorf(box.Unusable, "start session", "cannot make folder for a session: %w", err)
	}
	return openSession(ctx, state, dir, resolvers, log)
}

func openSession(ctx context.Context, state, dir string, resolvers []netip.AddrPort, log *slog.Logger) (*clientSession, error) {
	rules := defaultRules()
	rules.Share = tenant.Amounts{Boxes: 16}
	s, err := newService(ctx, serviceOptions{
		bounds: networkBounds{own: true}, // a model chooses no rules; they are of whoever starts this
		state:  dir, images: filepath.Join(state, "images"), rules: rules, ttl: 24 * time.Hour, maxTTL: 24 * time.Hour, snapshots: defaultSnapshots(), resolvers: resolvers, log: log,
	})
	if err != nil {
		return nil, err
	}
	return &clientSession{s, dir}, nil
}

// Close destroys the session's boxes and its folder.
func (s *clientSession) Close(ctx context.Context) error {
	err := s.DestroyAll(ctx)
	err = errors.Join(err, s.service.Close())
	if err == nil {
		err = hostfs.RemoveTree(ctx, s.dir)
	}
	return err
}
