package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/tenant"
)

// LastingSweeper is implemented by tiers with boxes that last: it destroys those
// for which keep is false, and returns their IDs.
type LastingSweeper interface {
	SweepLasting(ctx context.Context, keep func(box.ID) bool) ([]box.ID, error)
}

// recoverAtOnce is how many boxes are taken up at a time. One that does not answer
// takes seconds until it is given up, and a box can see to it that it does not
// answer: they must not add up before anybody is served.
const recoverAtOnce = 64

// recover takes up what an earlier service left. A box of which a tier says that
// it cannot be reached now is kept, and looked for again; see absent.
func (s *Service) recover(ctx context.Context) error {
	rows, err := s.cfg.Store.Alive(ctx)
	if err != nil {
		return err
	}
	s.holdVolumes(rows)
	found, errs := s.recoverAll(ctx, rows)
	if ctx.Err() != nil {
		return fmt.Errorf("cannot take up boxes: %w", ctx.Err()) // they live on
	}
	for i, r := range rows {
		switch err := errs[i]; {
		case errors.Is(err, errEnding):
			if err := s.finish(ctx, r); err != nil {
				return err
			}
		case err == nil:
			s.admit(found[i])
		case box.KindOf(err) == box.Unavailable:
			s.miss(r, err)
		default:
			if err := s.lose(ctx, r, err); err != nil {
				return err
			}
		}
	}
	fault.Here("engine.recover-rows")
	if err := s.cfg.Store.UnclaimFailed(ctx); err != nil {
		return err
	}
	keep := func(id box.ID) bool { return s.lookup(id) != nil || s.missing(id) != nil }
	for _, t := range s.cfg.Engine.Tiers {
		sw, ok := t.(LastingSweeper)
		if !ok {
			continue
		}
		swept, err := sw.SweepLasting(ctx, keep)
		for _, id := range swept {
			s.cfg.Log.Warn("box destroyed that nobody owns", "box", id)
		}
		if err != nil { // a tier that does not work here has none, as a rule
			s.cfg.Log.Warn("cannot look for boxes that nobody owns", "tier", t.Name(), "error", err)
		}
	}
	if e := s.cfg.Engine.Egress; e != nil {
		if err := e.Sweep(keep); err != nil {
			s.cfg.Log.Warn("cannot look for what boxes that are no more had used of their networks", "error", err)
		}
	}
	fault.Here("engine.recover-swept")
	return nil
}

// lose writes down that a box is no more, or never was.
func (s *Service) lose(ctx context.Context, r box.Record, why error) error {
	fault.Here("engine.recover-lost")
	reason, detail := box.ReasonLost, why.Error()
	if r.Phase == box.PhaseCreated {
		reason, detail = box.ReasonFailed, "the daemon ended while it was being made"
	}
	s.cfg.Log.Warn("box lost", "box", r.ID, "tenant", r.Tenant, "detail", detail)
	var k kept
	if err := json.Unmarshal(r.Spec, &k); err != nil {
		k = kept{Tier: r.Tier} // a row that cannot be read is one that nobody needs
	}
	return s.bury(ctx, r.ID, k, reason, detail, nil)
}

// errEnding is for a box whose destruction had begun: the sweep finishes it.
var errEnding = errors.New("it was being destroyed")

// intend writes down that a box is about to be destroyed, and why. On a full disk
// it is destroyed all the same, which makes room; should the daemon be killed
// then, too, it is told as lost.
func (s *Service) intend(ctx context.Context, l *live) {
	_, err := s.cfg.Store.Change(ctx, l.id, func(r *box.Record) error {
		var k kept
		err := json.Unmarshal(r.Spec, &k)
		if err == nil {
			k.Ending, k.EndingDetail = l.reason, l.detail
			r.Spec, err = json.Marshal(k)
		}
		return err
	})
	if err != nil && box.KindOf(err) != box.NotFound {
		s.cfg.Log.WarnContext(ctx, "cannot write down that a box is being destroyed", "box", l.id, "error", err)
	}
}

// finish writes down the end of a box whose destruction had begun.
func (s *Service) finish(ctx context.Context, r box.Record) error {
	var k kept
	if err := json.Unmarshal(r.Spec, &k); err != nil {
		return fmt.Errorf("cannot read row of box %s: %w", r.ID, err)
	}
	s.cfg.Log.InfoContext(ctx, "box destroyed, as was begun", "box", r.ID, "tenant", r.Tenant, "reason", k.Ending)
	reason, detail := k.Ending, k.EndingDetail
	k.Ending, k.EndingDetail = "", ""
	return s.bury(ctx, r.ID, k, reason, detail, nil)
}

// bury writes the row of a box of which nothing is left on the host. One that was
// forgotten meanwhile is no error.
func (s *Service) bury(ctx context.Context, id box.ID, k kept, reason box.Reason, detail string, account []byte) error {
	k.Env, k.Sandbox = nil, nil // nobody needs them any more, and there may be keys in them
	spec, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("cannot keep box: %w", err)
	}
	s.holders.drop(id)
	_, err = s.cfg.Store.Change(ctx, id, func(r *box.Record) error {
		r.Phase, r.Reason, r.Detail, r.Destroyed, r.Account = box.PhaseDestroyed, reason, detail, now(), account
		r.Spec, r.State = spec, nil
		return nil
	})
	if box.KindOf(err) == box.NotFound {
		return nil
	}
	return err
}

func (s *Service) recoverAll(ctx context.Context, rows []box.Record) ([]*live, []error) {
	found, errs := make([]*live, len(rows)), make([]error, len(rows))
	slots := make(chan struct{}, recoverAtOnce)
	var all sync.WaitGroup
	for i, r := range rows {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			found[i], errs[i] = s.recoverOne(ctx, r)
		})
	}
	all.Wait()
	return found, errs
}

// recoverOne takes up a box. An error of kind Unavailable says that the box is
// there, and nothing was done to it.
func (s *Service) recoverOne(ctx context.Context, r box.Record) (*live, error) {
	if r.Phase == box.PhaseCreated {
		return nil, errors.New("it was not made")
	}
	var k kept
	if err := json.Unmarshal(r.Spec, &k); err != nil {
		return nil, fmt.Errorf("cannot read its row: %w", err)
	}
	if k.Ending != "" {
		return nil, errEnding
	}
	for _, t := range s.cfg.Engine.Tiers {
		if t.Name() != r.Tier {
			continue
		}
		b, err := t.Recover(ctx, r.ID, r.State)
		if err != nil {
			return nil, err
		}
		fault.Here("engine.recover-taken")
		lasting, ok := b.(box.Lasting)
		if !ok {
			return nil, errors.Join(fmt.Errorf("tier %s gave no lasting box", r.Tier), destroy(ctx, b))
		}
		pass := s.cfg.Gate.Keep(r.Tenant, tenant.Amounts{Boxes: 1, MilliCPU: k.Limits.MilliCPU, Memory: k.Limits.Memory})
		l := s.newLive(r, k, lasting, s.cfg.Guest(lasting.Agent), pass)
		if err := s.settle(ctx, l, r.Phase); err != nil {
			pass.Release()
			if box.KindOf(err) == box.Unavailable {
				l.giveUp()
				return nil, err
			}
			l.cancel()
			l.guest.Close()
			return nil, errors.Join(err, destroy(ctx, b))
		}
		s.relink(l)
		return l, nil
	}
	return nil, fmt.Errorf("tier %s is not in this build", r.Tier)
}
