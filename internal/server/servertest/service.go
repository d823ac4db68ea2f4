// Package servertest is a box.Service that lives in memory, for tests of what
// speaks to one.
//
// It is a fake with behaviour, not a mock: programs write at the pace of whoever
// follows them, files are there after they were written, a cell that loops goes
// on until it is interrupted, and what belongs to another tenant is not found.
// The programs are a handful of words (see [Guest.Start]), so that a test needs
// no operating system. What the real service does is checked where that lives;
// this is for the way there.
package servertest

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Service implements box.Service. It is safe for concurrent use.
type Service struct {
	mu     sync.Mutex
	boxes  []*Guest // in the order of their creation
	refuse error

	snapshots []snapshot // oldest first
	made      int        // of them
	volumes   []held
	keys      map[string]box.Caller
}

// Keys of the callers that New knows: two tenants, and one of the first without
// rights.
const (
	Key      = "e2b_alice"
	OtherKey = "e2b_bob"
	WeakKey  = "e2b_alice_without_rights"
	AdminKey = "e2b_admin"
)

// New returns a service without boxes.
func New() *Service {
	all := []box.Scope{box.ScopeRead, box.ScopeWrite, box.ScopeExec}
	return &Service{keys: map[string]box.Caller{
		Key:      {Tenant: "alice", Principal: "laptop", Scopes: all},
		OtherKey: {Tenant: "bob", Principal: "desk", Scopes: all},
		WeakKey:  {Tenant: "alice", Principal: "nobody", Scopes: []box.Scope{}},
		AdminKey: {Tenant: "admin", Principal: "root", Scopes: []box.Scope{box.ScopeAdmin}},
	}}
}

// Auth finds the caller of a key.
func (s *Service) Auth(_ context.Context, key string) (box.Caller, error) {
	c, ok := s.keys[key]
	if !ok {
		return box.Caller{}, box.Errorf(box.Denied, "authenticate", "cannot find the key")
	}
	return c, nil
}

// Refuse makes every call of the service and of its boxes fail with err; nil
// ends that.
func (s *Service) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *Service) refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse
}

// Create implements box.Service.
func (s *Service) Create(_ context.Context, c box.Caller, req box.CreateRequest) (box.Info, error) {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return box.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.boxes {
		if req.Key != "" && g.key == req.Key && g.info.Tenant == c.Tenant {
			return g.describe(), nil
		}
	}
	ttl := req.TTL
	if ttl == 0 {
		ttl = time.Hour
	}
	now := time.Now().UTC()
	g := newGuest(s, req.Key, box.Info{
		ID: box.NewID(), Tenant: c.Tenant, Principal: c.Principal, Phase: box.PhaseRunning, Tier: box.TierProcess,
		TierReason: "it is in memory", Image: "none", Policy: policy(), Metadata: req.Metadata, Created: now, Ends: now.Add(ttl), Idle: req.Idle, OnIdle: cmp.Or(req.OnIdle, box.IdleDestroy),
		Start: box.StartCold,
	})
	if req.Snapshot != "" {
		at, err := s.kept(c, req.Snapshot)
		if err != nil {
			return box.Info{}, err
		}
		g.files = copied(s.snapshots[at].files)
		g.info.Start, g.info.StartReason = box.StartRestored, "snapshot "+s.snapshots[at].ID
	}
	s.boxes = append(s.boxes, g)
	return g.describe(), nil
}

func policy() box.Policy {
	return box.Policy{Trust: box.Untrusted, Network: box.Net{Mode: box.NetNone}, Workdir: "/workspace", User: box.UserOrdinary, Limits: box.LimitsJSON{OnLimit: box.LimitRecord}}
}

func (s *Service) may(c box.Caller, scope box.Scope) error {
	if err := s.refused(); err != nil {
		return err
	}
	return c.May(scope)
}

func (s *Service) find(c box.Caller, id box.ID) (*Guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.boxes {
		if g.info.ID == id && g.info.Tenant == c.Tenant {
			return g, nil
		}
	}
	return nil, box.Errorf(box.NotFound, "find box", "cannot find this box")
}

// Inspect implements box.Service.
func (s *Service) Inspect(_ context.Context, c box.Caller, id box.ID) (box.Info, error) {
	if err := s.may(c, box.ScopeRead); err != nil {
		return box.Info{}, err
	}
	g, err := s.find(c, id)
	if err != nil {
		return box.Info{}, err
	}
	return g.describe(), nil
}

// List implements box.Service. Its cursor is the last id of the page before.
func (s *Service) List(_ context.Context, c box.Caller, req box.ListRequest) ([]box.Info, string, error) {
	if err := s.may(c, box.ScopeRead); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []box.Info
	for _, g := range s.boxes {
		i := g.describe()
		if i.Tenant == c.Tenant && (req.Destroyed || i.Phase != box.PhaseDestroyed) && matches(i.Metadata, req.Metadata) {
			all = append(all, i)
		}
	}
	if req.Cursor != "" {
		at := slices.IndexFunc(all, func(i box.Info) bool { return string(i.ID) == req.Cursor })
		if at < 0 {
			return nil, "", box.Errorf(box.Invalid, "list boxes", "cannot use this cursor: no page has it")
		}
		all = all[at+1:]
	}
	limit := req.Limit
	if limit == 0 {
		limit = 100
	}
	if len(all) > limit {
		return all[:limit], string(all[limit-1].ID), nil
	}
	return all, "", nil
}

func matches(has, want map[string]string) bool {
	for name, value := range want {
		if has[name] != value {
			return false
		}
	}
	return true
}

// Prolong implements box.Service.
func (s *Service) Prolong(_ context.Context, c box.Caller, id box.ID, ttl time.Duration) (box.Info, error) {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return box.Info{}, err
	}
	g, err := s.find(c, id)
	if err != nil {
		return box.Info{}, err
	}
	g.mu.Lock()
	if ends := time.Now().UTC().Add(ttl); ends.After(g.info.Ends) {
		g.info.Ends = ends
	}
	g.mu.Unlock()
	return g.describe(), nil
}

// Pause implements box.Service.
func (s *Service) Pause(_ context.Context, c box.Caller, id box.ID) (box.Info, error) {
	return s.step(c, id, box.PhasePaused, time.Now().UTC())
}

// Resume implements box.Service.
func (s *Service) Resume(_ context.Context, c box.Caller, id box.ID) (box.Info, error) {
	return s.step(c, id, box.PhaseRunning, time.Time{})
}

func (s *Service) step(c box.Caller, id box.ID, p box.Phase, since time.Time) (box.Info, error) {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return box.Info{}, err
	}
	g, err := s.find(c, id)
	if err != nil {
		return box.Info{}, err
	}
	g.mu.Lock()
	if g.info.Phase != p && g.info.Phase.Become(p) == nil {
		g.info.Phase, g.info.Paused = p, since
	}
	g.mu.Unlock()
	return g.describe(), nil
}

// Destroy implements box.Service.
func (s *Service) Destroy(_ context.Context, c box.Caller, id box.ID) error {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return err
	}
	g, err := s.find(c, id)
	if err != nil {
		return err
	}
	g.destroy()
	return nil
}

// Guest implements box.Service.
func (s *Service) Guest(_ context.Context, c box.Caller, id box.ID, scope box.Scope) (box.Guest, error) {
	if err := s.may(c, scope); err != nil {
		return nil, err
	}
	g, err := s.find(c, id)
	if err != nil {
		return nil, err
	}
	if _, err := s.step(box.Caller{Tenant: c.Tenant, Scopes: box.Scopes()}, id, box.PhaseRunning, time.Time{}); err != nil {
		return nil, err
	}
	if g.describe().Phase != box.PhaseRunning {
		return nil, box.Errorf(box.NotFound, "find box", "cannot find this box")
	}
	return g, nil
}

// Execute implements box.Service: it runs a word of [Guest.Start].
func (s *Service) Execute(ctx context.Context, c box.Caller, req box.ExecuteRequest) (*box.Report, error) {
	if err := s.may(c, box.ScopeExec); err != nil {
		return nil, err
	}
	argv := req.Argv
	if argv == nil {
		argv = []string{"/bin/sh", "-c", req.Code}
	}
	g := newGuest(s, "", box.Info{ID: box.NewID()})
	defer g.destroy()
	p, err := g.Start(ctx, box.ProcessSpec{Command: box.Command{Argv: argv}, Stdin: true})
	if err != nil {
		return nil, err
	}
	ref := box.ProcessRef{PID: p.PID}
	stdin, err := io.ReadAll(req.Stdin)
	if err != nil {
		return nil, err
	}
	if _, err := g.Input(ctx, ref, box.Input{Data: stdin, End: true}); err != nil {
		return nil, err
	}
	var out, errs string
	var end *box.End
	if err := g.Follow(ctx, ref, box.Positions{}, func(ev box.ProcessEvent) error {
		switch ev.Kind {
		case box.EventStdout:
			out += string(ev.Data)
		case box.EventStderr:
			errs += string(ev.Data)
		case box.EventEnd:
			end = ev.End
		}
		return nil
	}); err != nil {
		return nil, err
	}
	in := policy()
	in.Mounts, in.Volumes, in.NoMount = []box.Mount{}, []box.Volume{}, []string{}
	return &box.Report{
		ID: g.info.ID, Cause: end.Cause, ExitCode: &end.ExitCode, LimitsHit: []box.LimitHit{},
		Stdout: &out, StdoutClean: out, StdoutBytes: end.Stdout, Stderr: &errs, StderrClean: errs, StderrBytes: end.Stderr,
		Output: json.RawMessage("null"), Artifacts: []box.Artifact{}, Weak: []string{}, Network: box.Traffic{Denied: []box.Denial{}}, Tier: box.TierProcess,
		TierReason: "it is in memory", Image: "none", Start: box.StartCold, Policy: in,
	}, nil
}

// Whoami implements box.Service.
func (s *Service) Whoami(_ context.Context, c box.Caller) (box.Allowance, error) {
	if err := s.refused(); err != nil {
		return box.Allowance{}, err
	}
	return box.Allowance{Tenant: c.Tenant, Principal: c.Principal, Scopes: c.Scopes, Boxes: box.Share{Most: 10}}, nil
}
