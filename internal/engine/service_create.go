package engine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// Bounds of a box's metadata.
const (
	maxMetadata     = 32
	maxMetadataText = 256 // bytes of a key, and of a value
	maxKeyText      = 256 // bytes of an idempotency key
)

// Create implements box.Service. The row comes before the box, and says that it
// runs after it does: whatever happens in between, the next start finds a row
// without a box, or destroys both.
func (s *Service) Create(ctx context.Context, c box.Caller, req box.CreateRequest) (box.Info, error) {
	if err := c.May(box.ScopeWrite); err != nil {
		return box.Info{}, err
	}
	if err := checkOrigin(req); err != nil {
		return box.Info{}, err
	}
	wish, err := s.wish(c, req)
	if err != nil {
		return box.Info{}, err
	}
	wish.request = digest(req)
	if req.Key != "" {
		made, before, err := s.cfg.Store.Claimed(ctx, c.Tenant, req.Key, wish.request)
		if err != nil {
			return box.Info{}, err
		}
		if before {
			return s.madeBefore(ctx, c, made)
		}
	}
	return s.createFrom(ctx, c, req, wish)
}

// wish checks what can be checked before anything is taken.
func (s *Service) wish(c box.Caller, req box.CreateRequest) (Wish, error) {
	w, err := s.cfg.Parse(req.Sandbox)
	if err != nil {
		return w, err
	}
	w.Policy.Spec.Tenant, w.Policy.Spec.Principal = c.Tenant, c.Principal
	w.Policy.MustNotBeWeak = req.Strict
	w.Policy.MountRoots = append([]string{}, s.cfg.MountRoots...) // none is not any
	if err := s.checkMounts(w.Policy.Spec.Mounts); err != nil {
		return w, err
	}
	const op = "create box"
	if req.TTL < 0 || req.TTL > s.cfg.MaxTTL {
		return w, box.Errorf(box.Invalid, op, "cannot make a box for %v: allowed are more than 0 and at most %v", req.TTL, s.cfg.MaxTTL)
	}
	switch {
	case req.OnIdle != "" && req.OnIdle != box.IdleDestroy && req.OnIdle != box.IdlePause:
		return w, box.Errorf(box.Invalid, op, "cannot do %q with an idle box: allowed are %s and %s", req.OnIdle, box.IdleDestroy, box.IdlePause)
	case req.OnIdle == box.IdlePause && req.Idle == 0:
		return w, box.Errorf(box.Invalid, op, "cannot pause a box when it is idle: it has no idle time")
	}
	if req.Idle < 0 {
		return w, box.Errorf(box.Invalid, op, "cannot make a box with an idle time of %v: it is negative", req.Idle)
	}
	if len(req.Metadata) > maxMetadata {
		return w, box.Errorf(box.Invalid, op, "cannot keep metadata: %d pairs, at most %d", len(req.Metadata), maxMetadata)
	}
	for k, v := range req.Metadata {
		if k == "" || len(k) > maxMetadataText || len(v) > maxMetadataText {
			return w, box.Errorf(box.Invalid, op, "cannot keep metadata %q: a key has 1 to %d bytes and a value at most as many", k[:min(len(k), 40)], maxMetadataText)
		}
	}
	if len(req.Key) > maxKeyText {
		return w, box.Errorf(box.Invalid, op, "cannot use idempotency key: %d bytes, at most %d", len(req.Key), maxKeyText)
	}
	return w, nil
}

// checkMounts judges by name alone; judgeMounts, later, by what the names lead to.
func (s *Service) checkMounts(mounts []box.Mount) error {
	for _, m := range mounts {
		if !listed(m.Source, s.cfg.MountRoots) {
			return notListed(m)
		}
	}
	return nil
}

// digest tells whether a request came before.
func digest(req box.CreateRequest) []byte {
	b, err := json.Marshal(struct {
		S      json.RawMessage
		M      map[string]string
		T, I   time.Duration
		Strict bool
		O      box.IdleAction `json:",omitempty"`
		From   string         `json:",omitempty"`
		Like   string         `json:",omitempty"`
	}{req.Sandbox, req.Metadata, req.TTL, req.Idle, req.Strict, req.OnIdle, req.Snapshot, req.Template})
	if err != nil {
		b = []byte(err.Error()) // what is no JSON was refused before
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// madeBefore waits until a box that another request is making can be used.
func (s *Service) madeBefore(ctx context.Context, c box.Caller, id box.ID) (box.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := s.cfg.Store.Box(ctx, c.Tenant, id)
		switch {
		case err != nil && box.KindOf(err) != box.NotFound:
			return box.Info{}, err
		case err == nil && r.Phase != box.PhaseCreated:
			return s.info(ctx, r, false), nil // also of one that was destroyed since
		}
		select {
		case <-ctx.Done():
			return box.Info{}, box.Errorf(box.Unavailable, "create box", "cannot tell of box %s yet: another request with this key is making it", id)
		case <-tick.C:
		}
	}
}

// create makes a box that was decided on. A warm one comes before the idempotency
// key is tied to it, since then it has its ID already.
func (s *Service) create(ctx context.Context, c box.Caller, req box.CreateRequest, w Wish) (_ box.Info, err error) {
	d, tier, err := s.cfg.Engine.decide(w.Policy, "")
	if err != nil {
		return box.Info{}, err
	}
	if err := w.from.fits(d.Tier, d.Reason); err != nil {
		return box.Info{}, err
	}
	d.Spec.Lasting = true
	d.Spec.NoMount = refusedFor(d.Spec.NoMount, true) // what the tier compares by inode
	l := d.Spec.Limits
	pass, err := s.cfg.Gate.Enter(ctx, c.Tenant, tenant.Amounts{Boxes: 1, MilliCPU: l.MilliCPU, Memory: l.Memory}, false)
	if err != nil {
		return box.Info{}, err
	}
	used := false // the pass, by the box
	defer func() {
		pass.Started()
		if !used {
			pass.Release()
		}
	}()
	k := kept{
		Tier: d.Tier, Limits: l, Workdir: d.Spec.Workdir, User: w.User, Env: w.Env, Idle: req.Idle, OnIdle: req.OnIdle,
		Policy: inForce(d.Spec, w), Sandbox: req.Sandbox,
	}
	if d.Spec.Net.Mode == box.NetAllowlist {
		k.Reach, k.Generation = w.Policy.Reach, 1
	}
	if len(k.Sandbox) == 0 {
		k.Sandbox = json.RawMessage("{}")
	}
	warm, miss := s.warm(ctx, w, d)
	if warm == nil {
		d.Spec.ID = s.cfg.Engine.newID()
	} else {
		d.Spec.ID = warm.box.ID()
		defer func() {
			if !used {
				err = errors.Join(err, warm.end(ctx))
			}
		}()
	}
	k.Start, k.StartReason = w.from.start(warm != nil, miss)
	id := d.Spec.ID
	if req.Key != "" {
		made, first, err := s.cfg.Store.Claim(ctx, c.Tenant, req.Key, w.request, id)
		if err != nil {
			return box.Info{}, err
		}
		if !first {
			return s.madeBefore(ctx, c, made)
		}
		fault.Here("engine.create-claimed")
		defer func() {
			if !used {
				err = errors.Join(err, s.cfg.Store.Unclaim(context.WithoutCancel(ctx), c.Tenant, req.Key, id))
			}
		}()
	}
	opened, done, err := s.attach(ctx, c.Tenant, id, d.Spec.Volumes)
	if err != nil {
		return box.Info{}, err
	}
	defer done()
	k.Volumes, d.Spec.Volumes = d.Spec.Volumes, opened
	defer func() {
		if !used {
			s.holders.drop(id)
		}
	}()
	r := box.Record{
		ID: id, Tenant: c.Tenant, Principal: c.Principal, Phase: box.PhaseCreated, Tier: d.Tier, TierReason: d.Reason,
		Image: string(d.Spec.Image), Metadata: req.Metadata, Created: now(),
	}
	ttl := req.TTL
	if ttl == 0 {
		ttl = s.cfg.TTL
	}
	r.Ends = r.Created.Add(ttl)
	var live *live
	if warm != nil {
		live, r, err = s.adopt(ctx, r, k, w, warm, pass)
	} else {
		live, r, err = s.raise(ctx, r, k, w, tier, d.Spec, pass)
	}
	if live == nil {
		return box.Info{}, err
	}
	used = true
	s.admit(live)
	if err != nil {
		return box.Info{}, errors.Join(err, s.end(ctx, live, box.ReasonFailed, "it could not be written down"))
	}
	s.cfg.Log.InfoContext(ctx, "box created", "box", id, "tenant", c.Tenant, "principal", c.Principal, "tier", d.Tier, "start", k.Start)
	return s.info(ctx, r, false), nil
}

// inForce is what a box is told to have. Time, idleness and output are bounds of each
// program's, which its call says: the box itself has none.
func inForce(spec box.Spec, w Wish) box.Policy {
	spec.Limits.Timeout, spec.Limits.Idle, spec.Limits.Output = 0, 0, 0
	return policy.InForce(spec, w.Policy.Trust, w.User)
}

// raise makes the box. If there is one the answer has it, also with an error.
func (s *Service) raise(ctx context.Context, r box.Record, k kept, w Wish, tier box.Tier, spec box.Spec, pass *tenant.Pass) (_ *live, _ box.Record, err error) {
	if r.Spec, err = json.Marshal(k); err != nil {
		return nil, r, fmt.Errorf("cannot keep box: %w", err)
	}
	if err := s.cfg.Store.Add(ctx, r); err != nil {
		return nil, r, err
	}
	fault.Here("engine.create-added")
	s.building.Add(1)
	b, names, err := s.build(ctx, tier, spec, w)
	s.building.Add(-1)
	fault.Here("engine.create-built")
	if err == nil {
		if err = usable(b, k, w); err != nil {
			err = errors.Join(err, destroy(ctx, b))
		}
	}
	if err != nil {
		return nil, r, s.unmade(ctx, r.ID, err)
	}
	complete(&r, &k, b)
	live := s.newLive(r, k, b, s.cfg.Guest(b.Agent), pass)
	live.network.names = names
	err = s.renewGuest(ctx, r.ID, live.guest, w.from)
	if err == nil {
		err = s.linkUp(ctx, live)
	}
	if err != nil {
		live.cancel()
		live.guest.Close()
		s.linkDown(ctx, live)
		return nil, r, s.unmade(ctx, r.ID, errors.Join(err, destroy(ctx, b)))
	}
	r, err = s.cfg.Store.Change(context.WithoutCancel(ctx), r.ID, func(now *box.Record) (err error) {
		now.Phase, now.Weak, now.State, now.Image = box.PhaseRunning, r.Weak, r.State, r.Image
		now.Spec, err = json.Marshal(k)
		return err
	})
	fault.Here("engine.create-running")
	return live, r, err
}

// adopt makes a warm box the caller's. It is there already, so its row says from
// the first that it runs; before the row, the box is nobody's.
func (s *Service) adopt(ctx context.Context, r box.Record, k kept, w Wish, warm *lent, pass *tenant.Pass) (_ *live, _ box.Record, err error) {
	if err := usable(warm.box, k, w); err != nil {
		return nil, r, err
	}
	complete(&r, &k, warm.box)
	r.Phase = box.PhaseRunning
	if r.Spec, err = json.Marshal(k); err != nil {
		return nil, r, fmt.Errorf("cannot keep box: %w", err)
	}
	live := s.newLive(r, k, warm.box, warm.guest, pass)
	fault.Here("engine.lease-bound")
	if err = s.linkUp(ctx, live); err == nil {
		err = s.cfg.Store.Add(ctx, r)
	}
	if err != nil {
		live.cancel()
		s.linkDown(ctx, live)
		return nil, r, err
	}
	fault.Here("engine.lease-added")
	return live, r, nil
}

// complete notes what is known of a box once it is there.
func complete(r *box.Record, k *kept, b box.Lasting) {
	r.Weak, r.State = b.Weak(), b.State()
	if n, ok := b.(interface{ RootImage() string }); ok {
		r.Image = n.RootImage()
	}
	if p, ok := b.(interface{ SearchPath() string }); ok {
		k.Path = p.SearchPath()
	}
}

// usable refuses a box that is not all that was asked for.
func usable(b box.Lasting, k kept, w Wish) error {
	if w.Policy.MustNotBeWeak && len(b.Weak()) > 0 {
		return box.Errorf(box.Denied, "create box", "cannot make the box: this host cannot enforce everything: %s", strings.Join(b.Weak(), "; ")).
			WithHint("`sunaba doctor` says what this host lacks; or leave out strict")
	}
	if k.OnIdle == box.IdlePause {
		_, err := pauser(b)
		return err
	}
	return nil
}

// unmade writes down that there is no box, and why.
func (s *Service) unmade(ctx context.Context, id box.ID, err error) error {
	_, serr := s.cfg.Store.Change(context.WithoutCancel(ctx), id, func(r *box.Record) error {
		r.Phase, r.Reason, r.Detail, r.Destroyed = box.PhaseDestroyed, box.ReasonFailed, err.Error(), now()
		r.Spec = bare(r.Spec)
		return nil
	})
	return errors.Join(err, serr)
}

// build makes the box, or leaves nothing.
func (s *Service) build(ctx context.Context, t box.Tier, spec box.Spec, w Wish) (box.Lasting, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	b, names, err := w.from.make(ctx, t, spec)
	switch {
	case err != nil && w.from != nil:
		return nil, nil, err
	case err != nil:
		return nil, nil, s.cfg.Engine.explain(ctx, t, err)
	}
	if lasting, ok := b.(box.Lasting); ok {
		return lasting, names, nil
	}
	err = box.Errorf(box.Unsupported, "create box", "cannot make a box that lasts: tier %s has none", t.Name())
	return nil, nil, errors.Join(err, destroy(ctx, b))
}
