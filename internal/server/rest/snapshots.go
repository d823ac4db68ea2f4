package rest

import (
	"context"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// Snapshot is what is known of one.
type Snapshot struct {
	ID        string           `json:"id" doc:"sha256: and the digest of all that it holds."`
	Name      string           `json:"name" doc:"Empty if it has none."`
	Kind      box.SnapshotKind `json:"kind" enum:"files,memory"`
	Tier      box.TierName     `json:"tier"`
	Image     string           `json:"image"`
	Box       box.ID           `json:"box" doc:"Of which it is."`
	Bytes     int64            `json:"bytes"`
	CreatedAt time.Time        `json:"created_at"`
}

func snapshotOf(i box.SnapshotInfo) Snapshot {
	return Snapshot{ID: i.ID, Name: i.Name, Kind: i.Kind, Tier: i.Tier, Image: i.Image, Box: i.Box, Bytes: i.Bytes, CreatedAt: i.Created.UTC()}
}

type snapshotRequest struct {
	BoxPath
	Body struct {
		Name string           `json:"name,omitempty" maxLength:"64" pattern:"^[a-z0-9._-]*$" doc:"To find it by; not in use yet."`
		Kind box.SnapshotKind `json:"kind,omitempty" enum:"files,memory" doc:"files (if absent): what was written in the box. memory: that and all that runs in it."`
	}
}

func (a *API) snapshot(ctx context.Context, in *snapshotRequest) (Snapshot, error) {
	i, err := a.Service.Snapshot(ctx, server.CallerOf(ctx), box.ID(in.ID), box.SnapshotRequest{Name: in.Body.Name, Kind: in.Body.Kind})
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(i), nil
}

type snapshotsRequest struct {
	PageQuery
	Box string `query:"box" maxLength:"64" doc:"Only those of this box."`
}

// SnapshotPage is a page of snapshots.
type SnapshotPage struct {
	Snapshots []Snapshot `json:"snapshots"`
	Next      string     `json:"next" doc:"The cursor of the next page; empty at the end."`
}

func (a *API) snapshotList(ctx context.Context, in *snapshotsRequest) (SnapshotPage, error) {
	all, next, err := a.Service.Snapshots(ctx, server.CallerOf(ctx), box.ListSnapshots{Box: box.ID(in.Box), Cursor: in.Cursor, Limit: in.Limit})
	if err != nil {
		return SnapshotPage{}, err
	}
	page := SnapshotPage{Snapshots: []Snapshot{}, Next: next}
	for _, i := range all {
		page.Snapshots = append(page.Snapshots, snapshotOf(i))
	}
	return page, nil
}

// SnapshotPath names a snapshot.
type SnapshotPath struct {
	Ref string `path:"ref" maxLength:"128" doc:"The snapshot's id or name."`
}

func (a *API) snapshotInfo(ctx context.Context, in *SnapshotPath) (Snapshot, error) {
	i, err := a.Service.InspectSnapshot(ctx, server.CallerOf(ctx), in.Ref)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(i), nil
}

func (a *API) deleteSnapshot(ctx context.Context, in *SnapshotPath) error {
	return a.Service.DeleteSnapshot(ctx, server.CallerOf(ctx), in.Ref)
}

type forkRequest struct {
	BoxPath
	Body struct {
		Count    int               `json:"count,omitempty" minimum:"1" maximum:"100" default:"1" doc:"How many copies."`
		TTLSec   float64           `json:"ttl_sec,omitempty" minimum:"0" maximum:"31536000" doc:"Each copy is destroyed after so long; 0 or absent takes the server's default."`
		Metadata map[string]string `json:"metadata,omitempty" doc:"Of each copy, in place of the box's."`
	}
}

// Fork is one copy of a box, or why there is none.
type Fork struct {
	Box   *Box            `json:"box,omitempty" doc:"Not there if there is an error."`
	Error *server.Problem `json:"error,omitempty" doc:"Not there if there is a box."`
}

// Forks are all of them, in order.
type Forks struct {
	Forks []Fork `json:"forks"`
}

// fork answers with 201 whatever became of each copy: which there are is in the
// answer.
func (a *API) fork(ctx context.Context, in *forkRequest) (Forks, error) {
	all, err := a.Service.Fork(ctx, server.CallerOf(ctx), box.ID(in.ID), box.ForkRequest{
		Count: in.Body.Count, TTL: seconds(in.Body.TTLSec), Metadata: in.Body.Metadata,
	})
	if err != nil {
		return Forks{}, err
	}
	out := Forks{Forks: []Fork{}}
	for _, f := range all {
		if f.Err != nil {
			out.Forks = append(out.Forks, Fork{Error: server.Explain(ctx, f.Err)})
			continue
		}
		b := boxOf(f.Info)
		out.Forks = append(out.Forks, Fork{Box: &b})
	}
	return out, nil
}
