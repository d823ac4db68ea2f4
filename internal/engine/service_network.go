package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
)

// link asks a box for the host's end of its link and hands it over with the box's
// rules. Until then nothing answers the box.
func (e *Engine) link(ctx context.Context, b box.Box, rules json.RawMessage, generation uint64, names []byte) error {
	const op = "link box"
	linked, ok := b.(box.Linked)
	switch {
	case e.Egress == nil:
		return box.Errorf(box.Unsupported, op, "cannot give box %s a network: there is no gateway here", b.ID())
	case !ok:
		return box.Errorf(box.Unsupported, op, "cannot give box %s a network: its tier has none", b.ID())
	}
	l, err := linked.Link(ctx)
	if err != nil {
		return err
	}
	fault.Here("engine.link-taken")
	return e.Egress.Attach(ctx, b.ID(), l, rules, generation, names)
}

// network is the part of a row that changes while its box runs.
type network struct {
	mu         sync.Mutex // held while it is brought up or changed
	reach      json.RawMessage
	generation uint64
	sandbox    json.RawMessage // with the network's rules as they are now
	names      []byte          // that it knows by what it is a copy of; until it is up
	up         bool
	over       bool         // it is being destroyed
	traffic    *box.Traffic // at its end
	told       string       // the last error that was logged
}

func (n *network) take(k kept) { n.reach, n.generation, n.sandbox = k.Reach, k.Generation, k.Sandbox }

// row is what the box's row keeps now.
func (l *live) row() kept {
	k := l.kept
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	k.Reach, k.Generation, k.Sandbox, k.Traffic = l.network.reach, l.network.generation, l.network.sandbox, l.network.traffic
	return k
}

// linkUp brings a box's network up, if it has one and that is not up yet.
func (s *Service) linkUp(ctx context.Context, l *live) error {
	n := &l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reach == nil || n.up || n.over {
		return nil
	}
	err := s.mayStill(n)
	if err == nil {
		err = s.cfg.Engine.link(ctx, l.box, n.reach, n.generation, n.names)
	}
	if n.up = err == nil; n.up {
		n.names = nil
	}
	return err
}

// mayStill refuses rules that a request could not ask for today: the operator may have
// closed a network since the box was made.
func (s *Service) mayStill(n *network) error {
	if n.sandbox == nil {
		return nil // of an earlier version, which kept none
	}
	if _, err := s.cfg.Parse(n.sandbox); err != nil {
		return fmt.Errorf("cannot put the box's network rules in force again: %w", err)
	}
	return nil
}

// relink is linkUp for a box that an earlier service made. One whose network cannot
// be brought up runs without, and it is tried again; one that stands still cannot be
// asked for its link.
func (s *Service) relink(l *live) {
	if l.ending.Load() || !l.pausedSince().IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, linkTimeout)
	defer cancel()
	err := s.linkUp(ctx, l)
	if s.ctx.Err() != nil {
		return
	}
	now := ""
	if err != nil {
		now = err.Error()
	}
	l.network.mu.Lock()
	before := l.network.told
	l.network.told = now
	l.network.mu.Unlock()
	switch { // once, not each second
	case now != "" && now != before:
		s.cfg.Log.Error("a box has no network for now", "box", l.id, "error", err)
	case now == "" && before != "":
		s.cfg.Log.Info("a box has its network again", "box", l.id)
	}
}

const linkTimeout = 10 * time.Second

// linkDown gives a box's network up for good.
func (s *Service) linkDown(ctx context.Context, l *live) {
	n := &l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	if n.reach == nil || s.cfg.Engine.Egress == nil {
		return
	}
	t := s.cfg.Engine.Egress.Detach(ctx, l.id)
	if n.up {
		n.traffic, n.up = &t, false
	}
}

// Network implements box.NetworkService.
func (s *Service) Network(ctx context.Context, c box.Caller, id box.ID) (box.NetworkInfo, error) {
	var none box.NetworkInfo
	if err := c.May(box.ScopeRead); err != nil {
		return none, err
	}
	r, err := s.cfg.Store.Box(ctx, c.Tenant, id)
	if err != nil {
		return none, err
	}
	var k kept
	if err := json.Unmarshal(r.Spec, &k); err != nil {
		return none, fmt.Errorf("cannot read row of box %s: %w", id, err)
	}
	return s.networkInfo(ctx, id, k), nil
}

func (s *Service) networkInfo(ctx context.Context, id box.ID, k kept) box.NetworkInfo {
	i := box.NetworkInfo{Mode: k.Policy.Network.Mode, Rules: k.Reach, Traffic: box.Traffic{Generation: k.Generation, Denied: []box.Denial{}}}
	if i.Mode == "" {
		i.Mode = box.NetNone // a row of an earlier version
	}
	var asked struct{ Network json.RawMessage }
	if json.Unmarshal(k.Sandbox, &asked) == nil && i.Mode != box.NetNone {
		i.Asked = asked.Network
	}
	if k.Traffic != nil {
		i.Traffic = *k.Traffic
	}
	if i.Mode == box.NetNone || s.cfg.Engine.Egress == nil || s.lookup(id) == nil {
		return i
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	t, err := s.cfg.Engine.Egress.Traffic(ctx, id)
	if i.Up = err == nil; i.Up || t.Denied != nil { // what is known while there is no gateway
		i.Traffic = t
	}
	return i
}

// SetNetwork implements box.NetworkService. The row comes first: should the daemon
// be killed then, the next one begins with the new rules, of a higher generation.
func (s *Service) SetNetwork(ctx context.Context, c box.Caller, id box.ID, wanted json.RawMessage) (box.NetworkInfo, error) {
	const op = "set network"
	var none box.NetworkInfo
	if err := c.May(box.ScopeWrite); err != nil {
		return none, err
	}
	l, err := s.find(ctx, c.Tenant, id)
	if err != nil {
		return none, err
	}
	asked, err := json.Marshal(map[string]json.RawMessage{"network": wanted})
	if err != nil {
		return none, box.Errorf(box.Invalid, op, "cannot read network: %w", err)
	}
	w, err := s.cfg.Parse(asked)
	if err != nil {
		return none, err
	}
	mode := w.Policy.Spec.Net.Mode
	switch {
	case l.kept.Policy.Network.Mode != box.NetAllowlist:
		return none, box.Errorf(box.Unsupported, op, "cannot give box %s a network: it was made without one", id).
			WithHint("make a box with network mode allowlist; its list may be empty")
	case mode != box.NetAllowlist || len(w.Policy.Reach) == 0:
		return none, box.Errorf(box.Unsupported, op, "cannot take the network of box %s away: mode is %q", id, mode).
			WithHint("give mode allowlist with an empty list: then it reaches nothing")
	}
	release, err := s.take(ctx, l)
	if err != nil {
		return none, err
	}
	defer release()
	before := l.row()
	after := before
	after.Reach, after.Generation = w.Policy.Reach, before.Generation+1
	if after.Sandbox, err = withNetwork(before.Sandbox, wanted); err != nil {
		return none, err
	}
	if err := s.putNetwork(ctx, l, after); err != nil {
		return none, err
	}
	fault.Here("engine.network-written")
	l.network.mu.Lock()
	up := l.network.up
	l.network.mu.Unlock()
	if up {
		if err := s.cfg.Engine.Egress.Update(ctx, id, after.Reach, after.Generation); err != nil {
			if rerr := s.putNetwork(ctx, l, before); rerr != nil {
				s.cfg.Log.ErrorContext(ctx, "cannot write back the rules in force", "box", id, "error", rerr)
			}
			return none, err
		}
	}
	s.cfg.Log.InfoContext(ctx, "rules of a network changed", "box", id, "tenant", c.Tenant, "principal", c.Principal, "generation", after.Generation)
	return s.networkInfo(ctx, id, after), nil
}

// putNetwork writes the rules down. The box's turn is held.
func (s *Service) putNetwork(ctx context.Context, l *live, k kept) error {
	_, err := s.cfg.Store.Change(context.WithoutCancel(ctx), l.id, func(r *box.Record) error {
		if r.Phase == box.PhaseDestroyed {
			return gone(l.id, *r)
		}
		var now kept
		err := json.Unmarshal(r.Spec, &now)
		if err == nil {
			now.Reach, now.Generation, now.Sandbox = k.Reach, k.Generation, k.Sandbox
			r.Spec, err = json.Marshal(now)
		}
		return err
	})
	if err != nil {
		return err
	}
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	l.network.take(k)
	return nil
}

// withNetwork is a configuration with another network, for copies of the box.
func withNetwork(sandbox, wanted json.RawMessage) (json.RawMessage, error) {
	if sandbox == nil {
		return nil, nil // of an earlier version, which kept none
	}
	all := map[string]json.RawMessage{}
	err := json.Unmarshal(sandbox, &all)
	if err == nil {
		all["network"] = wanted
		sandbox, err = json.Marshal(all)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep the network of the box: %w", err)
	}
	return sandbox, nil
}
