package rest

import (
	"context"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// BoxPath names a box.
type BoxPath struct {
	ID string `path:"id" maxLength:"64" doc:"The box's id."`
}

// createRequest asks for a box.
type createRequest struct {
	Key  string `header:"Idempotency-Key" maxLength:"128" doc:"The same key again answers with the same box instead of making another."`
	Body struct {
		Sandbox  Sandbox           `json:"sandbox,omitempty"`
		Snapshot string            `json:"snapshot,omitempty" maxLength:"128" doc:"Name or id of the snapshot that the box is made from; then without sandbox, which is that of the snapshot's box."`
		Template string            `json:"template,omitempty" maxLength:"64" doc:"Name of a template of the server's that the box is a copy of; then without sandbox and snapshot."`
		Metadata map[string]string `json:"metadata,omitempty" doc:"The caller's own: at most 32 pairs of 256 bytes."`
		TTLSec   float64           `json:"ttl_sec,omitempty" minimum:"0" maximum:"31536000" doc:"The box is destroyed after so long; 0 or absent takes the server's default. See ttl_sec and ends_at of the answer."`
		IdleSec  float64           `json:"idle_sec,omitempty" minimum:"0" maximum:"31536000" doc:"The box is destroyed when nobody used it and nothing runs in it for so long, or paused: see on_idle; 0 is never."`
		OnIdle   box.IdleAction    `json:"on_idle,omitempty" enum:"destroy,pause" doc:"What becomes of a box after idle_sec; destroy if absent. A paused box goes on at the next call of it."`
		Strict   bool              `json:"strict,omitempty" doc:"Refuse a box of which this host cannot enforce everything."`
	}
}

// Box is what is known of a box.
type Box struct {
	ID          box.ID            `json:"id"`
	Phase       box.Phase         `json:"phase" enum:"created,running,paused,destroyed"`
	Reason      box.Reason        `json:"reason,omitempty" doc:"Why it was destroyed."`
	Detail      string            `json:"detail,omitempty"`
	Tier        box.TierName      `json:"tier"`
	TierReason  string            `json:"tier_reason"`
	Image       string            `json:"image"`
	Weak        []string          `json:"weak" doc:"What was asked for and this host cannot enforce, one sentence each."`
	Start       box.StartKind     `json:"start" enum:"cold,warm,restored" doc:"How it came to be: made anew, from the pool, or from a snapshot or another box."`
	StartReason string            `json:"start_reason" doc:"Why it was not a warm start that was asked for, or what it was made from; empty if there is nothing to say."`
	Policy      box.Policy        `json:"policy" doc:"What is in force."`
	Metadata    map[string]string `json:"metadata"`
	CreatedAt   time.Time         `json:"created_at"`
	EndsAt      *time.Time        `json:"ends_at" doc:"Destroyed then, unless prolonged; null is never."`
	TTLSec      float64           `json:"ttl_sec" doc:"From created_at to ends_at; 0 is without end."`
	IdleSec     float64           `json:"idle_sec"`
	OnIdle      box.IdleAction    `json:"on_idle" enum:"destroy,pause"`
	PausedAt    *time.Time        `json:"paused_at" doc:"Since when it is paused; null while it is not. Paused time does not count for ends_at, which is told as if the box were resumed now."`
	DestroyedAt *time.Time        `json:"destroyed_at" doc:"Null while it lives."`
	LimitsHit   []box.LimitHit    `json:"limits_hit"`
	Usage       box.UsageJSON     `json:"usage" doc:"Up to now, or up to its end."`
	Principal   string            `json:"principal" doc:"Who asked for it."`
}

func boxOf(i box.Info) Box {
	b := Box{
		ID: i.ID, Phase: i.Phase, Reason: i.Reason, Detail: i.Detail,
		Tier: i.Tier, TierReason: i.TierReason, Image: i.Image, Weak: list(i.Weak),
		Start: i.Start, StartReason: i.StartReason, Policy: policyOf(i.Policy), Metadata: i.Metadata, Principal: i.Principal,
		CreatedAt: i.Created.UTC(), EndsAt: moment(i.Ends), IdleSec: i.Idle.Seconds(), OnIdle: i.OnIdle, PausedAt: moment(i.Paused),
		DestroyedAt: moment(i.Destroyed), LimitsHit: list(i.Limits),
		Usage: box.UsageJSON{
			CPUSeconds: i.Usage.CPU.Seconds(), WallSeconds: i.Usage.Wall.Seconds(),
			MemoryPeakBytes: i.Usage.MemoryPeak, BytesWritten: i.Usage.Written,
		},
	}
	if b.Metadata == nil {
		b.Metadata = map[string]string{}
	}
	if !i.Ends.IsZero() {
		b.TTLSec = i.Ends.Sub(i.Created).Seconds()
	}
	return b
}

func policyOf(p box.Policy) box.Policy {
	p.Mounts, p.Volumes, p.NoMount = list(p.Mounts), list(p.Volumes), list(p.NoMount)
	return p
}

// list makes an empty list of none, so that none is ever null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (a *API) create(ctx context.Context, in *createRequest) (Box, error) {
	i, err := a.Service.Create(ctx, server.CallerOf(ctx), box.CreateRequest{
		Sandbox: in.Body.Sandbox.RawMessage, Snapshot: in.Body.Snapshot, Template: in.Body.Template, Metadata: in.Body.Metadata, TTL: seconds(in.Body.TTLSec),
		Idle: seconds(in.Body.IdleSec), OnIdle: in.Body.OnIdle, Key: in.Key, Strict: in.Body.Strict,
	})
	if err != nil {
		return Box{}, err
	}
	return boxOf(i), nil
}

func (a *API) inspect(ctx context.Context, in *BoxPath) (Box, error) {
	i, err := a.Service.Inspect(ctx, server.CallerOf(ctx), box.ID(in.ID))
	if err != nil {
		return Box{}, err
	}
	return boxOf(i), nil
}

// PageQuery selects a page of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"How many at most; 100 if absent."`
	Cursor string `query:"cursor" maxLength:"512" doc:"next of an earlier page."`
}

type listRequest struct {
	PageQuery
	Destroyed bool     `query:"destroyed" doc:"Also those that are no more."`
	Metadata  []string `query:"metadata,explode" maxItems:"32" doc:"Only boxes with this pair, as name=value; several are all wanted."`
}

// BoxPage is a page of boxes.
type BoxPage struct {
	Boxes []Box  `json:"boxes"`
	Next  string `json:"next" doc:"The cursor of the next page; empty at the end."`
}

func (a *API) list(ctx context.Context, in *listRequest) (BoxPage, error) {
	pairs, err := pairsOf("metadata", in.Metadata)
	if err != nil {
		return BoxPage{}, err
	}
	infos, next, err := a.Service.List(ctx, server.CallerOf(ctx), box.ListRequest{
		Destroyed: in.Destroyed, Metadata: pairs, Cursor: in.Cursor, Limit: in.Limit,
	})
	if err != nil {
		return BoxPage{}, err
	}
	page := BoxPage{Boxes: []Box{}, Next: next}
	for _, i := range infos {
		page.Boxes = append(page.Boxes, boxOf(i))
	}
	return page, nil
}

type prolongRequest struct {
	BoxPath
	Body struct {
		TTLSec float64 `json:"ttl_sec" exclusiveMinimum:"0" maximum:"31536000" doc:"The box lives at least so long from now on. This never shortens: see ends_at of the answer."`
	}
}

func (a *API) prolong(ctx context.Context, in *prolongRequest) (Box, error) {
	i, err := a.Service.Prolong(ctx, server.CallerOf(ctx), box.ID(in.ID), seconds(in.Body.TTLSec))
	if err != nil {
		return Box{}, err
	}
	return boxOf(i), nil
}

func (a *API) pause(ctx context.Context, in *BoxPath) (Box, error) {
	i, err := a.Service.Pause(ctx, server.CallerOf(ctx), box.ID(in.ID))
	if err != nil {
		return Box{}, err
	}
	return boxOf(i), nil
}

func (a *API) resume(ctx context.Context, in *BoxPath) (Box, error) {
	i, err := a.Service.Resume(ctx, server.CallerOf(ctx), box.ID(in.ID))
	if err != nil {
		return Box{}, err
	}
	return boxOf(i), nil
}

func (a *API) destroy(ctx context.Context, in *BoxPath) error {
	return a.Service.Destroy(ctx, server.CallerOf(ctx), box.ID(in.ID))
}
