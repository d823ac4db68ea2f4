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
	id := s.cfg.Engine.newID()
	if req.Key != "" {
		made, first, err := s.cfg.Store.Claim(ctx, c.Tenant, req.Key, digest(req), id)
		if err != nil {
			return box.Info{}, err
		}
		if !first {
			return s.madeBefore(ctx, c, made)
		}
		fault.Here("engine.create-claimed")
	}
	info, err := s.createFrom(ctx, c, req, wish, id)
	if err != nil && req.Key != "" {
		err = errors.Join(err, s.cfg.Store.Unclaim(context.WithoutCancel(ctx), c.Tenant, req.Key, id))
	}
	return info, err
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
	}{req.Sandbox, req.Metadata, req.TTL, req.Idle, req.Strict, req.OnIdle, req.Snapshot})
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

func (s *Service) create(ctx context.Context, c box.Caller, req box.CreateRequest, w Wish, id box.ID) (_ box.Info, err error) {
	d, tier, err := s.cfg.Engine.decide(w.Policy, id)
	if err != nil {
		return box.Info{}, err
	}
	if err := w.from.fits(d.Tier, d.Reason); err != nil {
		return box.Info{}, err
	}
	d.Spec.Lasting = true
	l := d.Spec.Limits
	pass, err := s.cfg.Gate.Enter(ctx, c.Tenant, tenant.Amounts{Boxes: 1, MilliCPU: l.MilliCPU, Memory: l.Memory}, false)
	if err != nil {
		return box.Info{}, err
	}
	defer func() {
		pass.Started()
		if err != nil {
			pass.Release()
		}
	}()
	k := kept{
		Tier: d.Tier, Limits: l, Workdir: d.Spec.Workdir, User: w.User, Env: w.Env, Idle: req.Idle, OnIdle: req.OnIdle,
		Policy: policy.InForce(d.Spec, w.Policy.Trust, w.User), Sandbox: req.Sandbox,
	}
	if len(k.Sandbox) == 0 {
		k.Sandbox = json.RawMessage("{}")
	}
	k.Start, k.StartReason = w.from.start()
	d.Spec.NoMount = refusedFor(d.Spec.NoMount, true) // what the tier compares by inode
	r := box.Record{
		ID: id, Tenant: c.Tenant, Principal: c.Principal, Phase: box.PhaseCreated, Tier: d.Tier, TierReason: d.Reason,
		Image: string(d.Spec.Image), Metadata: req.Metadata, Created: now(),
	}
	ttl := req.TTL
	if ttl == 0 {
		ttl = s.cfg.TTL
	}
	r.Ends = r.Created.Add(ttl)
	if r.Spec, err = json.Marshal(k); err != nil {
		return box.Info{}, fmt.Errorf("cannot keep box: %w", err)
	}
	if err := s.cfg.Store.Add(ctx, r); err != nil {
		return box.Info{}, err
	}
	fault.Here("engine.create-added")
	b, err := s.build(ctx, tier, d.Spec, w)
	fault.Here("engine.create-built")
	if err == nil && req.OnIdle == box.IdlePause {
		if _, err = pauser(b); err != nil {
			err = errors.Join(err, destroy(ctx, b))
		}
	}
	if err != nil {
		return box.Info{}, s.unmade(ctx, id, err)
	}
	if p, ok := b.(interface{ SearchPath() string }); ok {
		k.Path = p.SearchPath()
	}
	live := s.newLive(r, k, b, pass)
	if err := s.renew(ctx, live, w.from); err != nil {
		live.cancel()
		live.guest.Close()
		return box.Info{}, s.unmade(ctx, id, errors.Join(err, destroy(ctx, b)))
	}
	r, err = s.cfg.Store.Change(context.WithoutCancel(ctx), id, func(r *box.Record) (err error) {
		r.Phase, r.Weak, r.State = box.PhaseRunning, b.Weak(), b.State()
		if n, ok := b.(interface{ RootImage() string }); ok {
			r.Image = n.RootImage()
		}
		r.Spec, err = json.Marshal(k)
		return err
	})
	fault.Here("engine.create-running")
	s.admit(live)
	if err != nil {
		return box.Info{}, errors.Join(err, s.end(ctx, live, box.ReasonFailed, "it could not be written down"))
	}
	s.cfg.Log.InfoContext(ctx, "box created", "box", id, "tenant", c.Tenant, "principal", c.Principal, "tier", d.Tier)
	return s.info(ctx, r, false), nil
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

// build makes the box and hears from its agent, or leaves nothing.
func (s *Service) build(ctx context.Context, t box.Tier, spec box.Spec, w Wish) (box.Lasting, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	b, err := w.from.make(ctx, t, spec)
	switch {
	case err != nil && w.from != nil:
		return nil, err
	case err != nil:
		return nil, s.cfg.Engine.explain(ctx, t, err)
	}
	lasting, ok := b.(box.Lasting)
	switch {
	case !ok:
		err = box.Errorf(box.Unsupported, "create box", "cannot make a box that lasts: tier %s has none", t.Name())
	case w.Policy.MustNotBeWeak && len(b.Weak()) > 0:
		err = box.Errorf(box.Denied, "create box", "cannot make the box: this host cannot enforce everything: %s", strings.Join(b.Weak(), "; ")).
			WithHint("`sunaba doctor` says what this host lacks; or leave out strict")
	}
	if err != nil {
		return nil, errors.Join(err, destroy(ctx, b))
	}
	return lasting, nil
}
