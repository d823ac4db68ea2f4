package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/pool"
	"github.com/sunaba-dev/sunaba/internal/snapshot"
	"github.com/sunaba-dev/sunaba/internal/store"
	"github.com/sunaba-dev/sunaba/internal/tenant"
	"github.com/sunaba-dev/sunaba/internal/volume"
)

// Config is what a Service is made of.
type Config struct {
	Engine *Engine
	Store  *store.Store
	Gate   *tenant.Gate
	// Parse reads the keys below `sandbox` of a configuration file, as JSON; empty
	// input gives the defaults.
	Parse func(json.RawMessage) (Wish, error)
	// Guest makes the host's end of an agent's protocol.
	Guest func(dial func(context.Context) (net.Conn, error)) Agent
	// MountRoots are the folders of this host below which callers may mount;
	// without any a request with mounts is refused. A caller over the network is
	// not the owner of this host's files.
	MountRoots []string
	// Snapshots keeps copies of boxes; nil keeps none.
	Snapshots        *snapshot.Store
	MaxSnapshot      int64 // bytes of one
	MaxSnapshots     int   // of one tenant; 0 = no bound
	MaxSnapshotBytes int64 // of all of one tenant's together; 0 = no bound
	// Volumes keeps file systems that outlive boxes; nil keeps none.
	Volumes        *volume.Store
	MaxVolumes     int   // of one tenant; 0 = no bound
	MaxVolumeBytes int64 // of all of one tenant's together; 0 = no bound
	Warm           int   // boxes kept warm for requests that reuse, together; 0 = none
	Templates      []Template
	TTL            time.Duration // of a box that does not say
	MaxTTL         time.Duration
	MaxPaused      time.Duration // for which a box may be paused; then it is destroyed. 0 = for ever
	Log            *slog.Logger

	lead func() time.Duration // of the wall clock, since the start; tests have their own
}

// Wish is what a caller's configuration asks for.
type Wish struct {
	Policy policy.Request
	User   box.User
	Env    []string

	Reuse    bool // take a warm box
	PoolSize int  // that are kept of its shape

	request  []byte  // digest of what came, for its idempotency key
	template string  // whose copies the warm boxes are; empty = nothing was run in them
	from     *origin // nil = the box is made anew
}

// Agent is the host's end of an agent's protocol.
type Agent interface {
	box.Guest
	Close()
}

// Service keeps boxes that last. It implements [box.Service] and is safe for
// concurrent use: each box has a lock of its own, and no call waits for another
// box.
type Service struct {
	cfg  Config
	stop context.CancelFunc
	ctx  context.Context // ends with the service
	work sync.WaitGroup  // what goes on in the background

	began time.Time

	mu    sync.Mutex
	boxes map[box.ID]*live
	// Of boxes that are there and cannot be taken up for now.
	absent map[box.ID]*absent

	holders   *holders
	makes     *tenant.Turns // of who makes a volume
	copies    *tenant.Turns // of who copies a box
	forks     *tenant.Turns // and of who makes boxes of a copy
	warmth    *warmth
	templates map[string]*template // does not change
	building  atomic.Int64         // requests whose box is being made
}

// Times of the service's own.
const (
	reapEvery    = time.Second
	askTimeout   = 5 * time.Second // an agent or an account, when nobody waits for it
	startTimeout = 60 * time.Second
)

// Start takes up the boxes that an earlier service left, destroys what cannot be
// taken up, and whatever of the host's belongs to no row. Close gives them up
// again.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{
		cfg: cfg, began: time.Now(), boxes: map[box.ID]*live{}, absent: map[box.ID]*absent{}, templates: map[string]*template{},
		holders: newHolders(), makes: tenant.NewTurns(volumeTurns()), copies: tenant.NewTurns(copyTurns()), forks: tenant.NewTurns(forkTurns()),
	}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if s.cfg.lead == nil {
		s.cfg.lead = leadFrom(s.began)
	}
	err := s.checkTemplates(cfg.Templates)
	if err == nil {
		s.warmth, err = s.newWarmth(cfg.Warm)
	}
	if err == nil {
		err = s.sweepSnapshots(ctx)
	}
	if err == nil {
		err = s.sweepVolumes(ctx)
	}
	if err == nil {
		err = s.recover(ctx)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	s.work.Go(s.reap)
	s.work.Go(s.prepare)
	return s, nil
}

// Close gives up all boxes, which live on, and returns when nothing of the
// service is at work any more.
func (s *Service) Close() error {
	s.stop()
	s.mu.Lock()
	all := s.boxes
	s.boxes = map[box.ID]*live{}
	s.mu.Unlock()
	for _, l := range all {
		l.giveUp()
	}
	s.work.Wait()
	err := s.warmth.close() // nobody asks for them any more
	s.closeTemplates()
	return err
}

// DestroyAll ends every box, of every tenant.
func (s *Service) DestroyAll(ctx context.Context) error {
	var errs []error
	for _, l := range s.all() {
		errs = append(errs, s.end(ctx, l, box.ReasonStopped, ""))
	}
	for _, a := range s.allMissing() {
		errs = append(errs, s.endMissing(ctx, a, box.ReasonStopped))
	}
	return errors.Join(errs...)
}

// Stats is how much there is of what, over all tenants.
type Stats struct {
	Boxes   map[box.TierName]int
	Waiting int // for a box
	Warm    []pool.Stat
	Absent  int // boxes of an earlier daemon's that cannot be reached for now
}

// Stats counts.
func (s *Service) Stats() Stats {
	st := Stats{Boxes: map[box.TierName]int{}, Waiting: s.cfg.Gate.Waiting(), Absent: len(s.allMissing())}
	for _, l := range s.all() {
		st.Boxes[l.kept.Tier]++
	}
	st.Warm = s.warmth.pool.Stats()
	return st
}

func (s *Service) all() []*live {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*live, 0, len(s.boxes))
	for _, l := range s.boxes {
		out = append(out, l)
	}
	return out
}

// Inspect implements box.Service.
func (s *Service) Inspect(ctx context.Context, c box.Caller, id box.ID) (box.Info, error) {
	if err := c.May(box.ScopeRead); err != nil {
		return box.Info{}, err
	}
	r, err := s.cfg.Store.Box(ctx, c.Tenant, id)
	if err != nil {
		return box.Info{}, err
	}
	return s.info(ctx, r, true), nil
}

// Whoami implements box.Service.
func (s *Service) Whoami(_ context.Context, c box.Caller) (box.Allowance, error) {
	used, most := s.cfg.Gate.Used(c.Tenant)
	return box.Allowance{
		Tenant: c.Tenant, Principal: c.Principal, Scopes: c.Scopes,
		Boxes:    box.Share{Used: used.Boxes, Most: most.Boxes},
		MilliCPU: box.Share{Used: used.MilliCPU, Most: most.MilliCPU},
		Memory:   box.Share{Used: used.Memory, Most: most.Memory},
	}, nil
}

// Prolong implements box.Service.
func (s *Service) Prolong(ctx context.Context, c box.Caller, id box.ID, ttl time.Duration) (box.Info, error) {
	if err := c.May(box.ScopeWrite); err != nil {
		return box.Info{}, err
	}
	if ttl <= 0 || ttl > s.cfg.MaxTTL {
		return box.Info{}, box.Errorf(box.Invalid, "prolong box", "cannot prolong by %v: allowed are more than 0 and at most %v", ttl, s.cfg.MaxTTL)
	}
	if _, err := s.find(ctx, c.Tenant, id); err != nil {
		return box.Info{}, err
	}
	r, err := s.cfg.Store.Change(ctx, id, func(r *box.Record) error {
		if r.Phase == box.PhaseDestroyed {
			return gone(id, *r)
		}
		from := now()
		var k kept
		if err := json.Unmarshal(r.Spec, &k); err != nil {
			return err
		}
		if r.Phase == box.PhasePaused {
			from = k.Paused // its time goes on from there
		}
		ends := from.Add(ttl)
		if r.Ends.IsZero() || !ends.After(r.Ends) {
			return nil
		}
		var err error
		k.Moved, r.Ends = 0, ends
		if r.Spec, err = json.Marshal(k); err != nil {
			return err
		}
		if l := s.lookup(id); l != nil {
			l.setEnds(r.Ends) // before anybody else has the row
		}
		return nil
	})
	if err != nil {
		return box.Info{}, err
	}
	return s.info(ctx, r, false), nil
}

// now is the time as a row keeps it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (s *Service) lookup(id box.ID) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[id]
}

// find returns a tenant's box that is alive. What is not there, not the tenant's
// or no more is NotFound; only the owner learns why it is no more.
func (s *Service) find(ctx context.Context, owner string, id box.ID) (*live, error) {
	l := s.lookup(id)
	if l != nil && l.tenant == owner && !l.ending.Load() {
		return l, nil
	}
	r, err := s.cfg.Store.Box(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	switch {
	case s.ctx.Err() != nil && r.Phase != box.PhaseDestroyed:
		return nil, leaving(id)
	case r.Phase == box.PhaseDestroyed:
		return nil, gone(id, r)
	case s.missing(id) != nil:
		return nil, s.missing(id).unreached()
	case r.Phase == box.PhaseCreated || l == nil: // its row is written before it is known here
		return nil, box.Errorf(box.Unavailable, "find box", "cannot use box %s yet: it is being made", id)
	}
	return nil, box.Errorf(box.NotFound, "find box", "cannot find box %s: it is being destroyed", id)
}

// leaving says that the box is not the one that goes.
func leaving(id box.ID) *box.Error {
	e := box.Errorf(box.Unavailable, "use box", "cannot go on with box %s: the daemon is ending; the box lives on", id)
	e.Retry = time.Second
	return e
}

// gone says why a box is no more.
func gone(id box.ID, r box.Record) *box.Error {
	e := box.Errorf(box.NotFound, "find box", "cannot find box %s: it was destroyed at %s (%s)", id, r.Destroyed.Format(time.RFC3339), why(r))
	return e.WithHint("make a new one; what is still known of it is told on request (`sunaba box inspect`, GET of the box)")
}

func why(r box.Record) string {
	words := map[box.Reason]string{
		box.ReasonAsked: "its owner asked for it", box.ReasonTTL: "its time was over", box.ReasonIdle: "nobody used it",
		box.ReasonFailed: "it could not be made", box.ReasonLost: "it died", box.ReasonLimit: "it ran into a limit", box.ReasonStopped: "the daemon was told to end it",
	}[r.Reason]
	if r.Detail != "" {
		words += ": " + r.Detail
	}
	return words
}
