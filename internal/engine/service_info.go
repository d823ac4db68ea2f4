package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/store"
)

// info tells of a row, and with asked of its box's account up to now.
func (s *Service) info(ctx context.Context, r box.Record, asked bool) box.Info {
	i := box.Info{
		ID: r.ID, Tenant: r.Tenant, Principal: r.Principal, Phase: r.Phase, Reason: r.Reason, Detail: r.Detail,
		Tier: r.Tier, TierReason: r.TierReason, Image: r.Image, Weak: r.Weak, Metadata: r.Metadata,
		Created: r.Created, Ends: r.Ends, Destroyed: r.Destroyed, Limits: []box.LimitHit{},
	}
	var k kept
	if json.Unmarshal(r.Spec, &k) == nil {
		i.Policy, i.Idle, i.OnIdle = k.Policy, k.Idle, k.OnIdle
		i.Start, i.StartReason = cmp.Or(k.Start, box.StartCold), k.StartReason
		if i.OnIdle == "" {
			i.OnIdle = box.IdleDestroy
		}
		if r.Phase == box.PhasePaused {
			i.Paused = k.Paused
			if !i.Ends.IsZero() {
				i.Ends = i.Ends.Add(s.movesBy(k.Moved, max(now().Sub(k.Paused), 0)))
			}
		}
	}
	if s.missing(r.ID) != nil && i.Detail == "" {
		i.Detail = absentDetail
	}
	var acc box.Account
	l := s.lookup(r.ID)
	switch {
	case len(r.Account) > 0:
		if json.Unmarshal(r.Account, &acc) != nil {
			acc = box.Account{}
		}
	case asked && l != nil:
		actx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if got, err := l.box.Account(actx); err == nil {
			acc = got
		}
	}
	i.Usage = acc.Usage
	i.Limits = append(i.Limits, acc.Limits...)
	return i
}

// Bounds of a page.
const (
	pageDefault = 100
	pageMost    = 1000
)

// List implements box.Service.
func (s *Service) List(ctx context.Context, c box.Caller, req box.ListRequest) ([]box.Info, string, error) {
	if err := c.May(box.ScopeRead); err != nil {
		return nil, "", err
	}
	if req.Limit < 0 || req.Limit > pageMost {
		return nil, "", box.Errorf(box.Invalid, "list boxes", "cannot list %d boxes: allowed are 1 to %d", req.Limit, pageMost)
	}
	n := req.Limit
	if n == 0 {
		n = pageDefault
	}
	after, err := place(req.Cursor)
	if err != nil {
		return nil, "", err
	}
	out := []box.Info{}
	for {
		rows, err := s.cfg.Store.List(ctx, c.Tenant, req.Destroyed, after, n+1)
		if err != nil {
			return nil, "", err
		}
		for _, r := range rows {
			if !matches(r.Metadata, req.Metadata) {
				after = store.Place{Created: r.Created, ID: r.ID}
				continue
			}
			if len(out) == n { // there is one more than fits
				return out, cursor(after), nil
			}
			out = append(out, s.info(ctx, r, false))
			after = store.Place{Created: r.Created, ID: r.ID}
		}
		if len(rows) <= n {
			return out, "", nil
		}
	}
}

func matches(has, wants map[string]string) bool {
	for k, v := range wants {
		if got, ok := has[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// cursor names a place; it is no secret, and only good for its tenant's list.
func cursor(p store.Place) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", p.Created.UnixMilli(), p.ID))
}

func place(cursor string) (p store.Place, err error) {
	if cursor == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	var ms int64
	var id string
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%d %s", &ms, &id)
	}
	if err != nil || !box.ID(id).Valid() || strings.Count(string(b), " ") != 1 {
		return p, box.Errorf(box.Invalid, "list boxes", "cannot use cursor %q: it is not one that a page gave", cursor[:min(len(cursor), 60)])
	}
	return store.Place{Created: time.UnixMilli(ms).UTC(), ID: box.ID(id)}, nil
}
