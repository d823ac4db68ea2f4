package box

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"
)

// SnapshotKind says how much of a box a snapshot holds.
type SnapshotKind string

// Snapshot kinds.
const (
	// SnapshotFiles holds all that was written in the box. A box that is made from
	// it starts anew with these files.
	SnapshotFiles SnapshotKind = "files"
	// SnapshotMemory holds that, and everything that runs: processes, threads,
	// open files, sockets that listen. A box that is made from it goes on.
	SnapshotMemory SnapshotKind = "memory"
)

// SnapshotKinds lists all kinds.
func SnapshotKinds() []SnapshotKind { return []SnapshotKind{SnapshotFiles, SnapshotMemory} }

// Snapshotter is implemented by boxes that last of which a copy can be kept. Its
// methods are safe for concurrent use.
type Snapshotter interface {
	// Snappable is nil, or says as Unsupported why this box gives no snapshot of
	// this kind.
	Snappable(SnapshotKind) error
	// Snapshot has what was written brought to the disk, stops the box, hands out
	// its parts, and lets it go on; a box that was paused stays so. If it
	// fails the box is as before. For SnapshotMemory the caller has closed all
	// streams of the box's agent, has seen the agent close its ends of them, and
	// opens none until Snapshot returns.
	//
	// Each part is written by put from the reader, which is made from
	// hostile data; put bounds it. Names are of [a-z0-9.-].
	Snapshot(ctx context.Context, kind SnapshotKind, put func(name string, r io.Reader) error) (SnapshotHead, error)
}

// SnapshotHead is what a tier says of a snapshot beside its parts.
type SnapshotHead struct {
	Kind SnapshotKind
	Tier TierName
	// Needs are the versions that it is tied to, by name: of the image, the
	// agent, the guest's kernel, the processor's features. All must be the same
	// where a box is made from it.
	Needs map[string]string
	Own   json.RawMessage // the tier's own; it never holds a secret
}

// Snapshot is one whose parts were compared with its digest, on the descriptors
// that are in it.
type Snapshot struct {
	SnapshotHead
	Parts map[string]*os.File // to be read from their start, by ReadAt
}

// Restorer is implemented by tiers that make boxes from snapshots.
type Restorer interface {
	// Restore is Create, of a box that is as the snapshot's was. It does not keep
	// the snapshot's files. The Spec is the one that the snapshot's box was made by,
	// but for ID, Tenant, Principal and Limits.MilliCPU; what else differs is
	// refused. A snapshot that needs other versions than are here is refused as
	// Conflict, with what changed. Of a box that goes on, the kernel's entropy,
	// clocks and names are made new; what its interpreters have of the past is
	// renewed by its agent: see [Renewer].
	Restore(context.Context, Spec, *Snapshot) (Box, error)
}

// Renewer is implemented by guests whose agent can tell the interpreters and
// clocks in the box that it stood still, or is a copy.
type Renewer interface {
	// Hold says that the box is about to stand still. The time of programs, cells
	// and readers that were cut off does not go on until Renew; without that, until
	// the box has run for a minute. What is due at the moment in which a box goes
	// on would else be ended before anybody could say that it stood.
	Hold(context.Context) error
	// Renew says that the box goes on. An agent of an earlier version has neither:
	// Unsupported.
	Renew(context.Context, Renewal) error
}

// Renewal is what changed while nothing in the box ran.
type Renewal struct {
	// Slept is how long it stood: deadlines of programs move by that. Where there
	// was a Hold before, the agent knows better, and does not look at it.
	Slept time.Duration
	// Copy says that another box has the same past. Random number generators of
	// the interpreters of code contexts are seeded anew.
	Copy bool
}

// SnapshotService is the part of a [Service] that keeps copies of boxes. A
// reference is a snapshot's ID or its name.
type SnapshotService interface {
	// Snapshot keeps a copy of a box. The box stands still meanwhile.
	Snapshot(context.Context, Caller, ID, SnapshotRequest) (SnapshotInfo, error)
	// Snapshots returns a page of the tenant's, newest first, and the cursor of the
	// next page.
	Snapshots(context.Context, Caller, ListSnapshots) (page []SnapshotInfo, next string, err error)
	InspectSnapshot(ctx context.Context, c Caller, ref string) (SnapshotInfo, error)
	// DeleteSnapshot forgets one; boxes that were made from it live on. One that
	// is not there is NotFound.
	DeleteSnapshot(ctx context.Context, c Caller, ref string) error
	// Fork makes copies of a box that runs, which goes on. Some may fail and
	// others not.
	Fork(context.Context, Caller, ID, ForkRequest) ([]Forked, error)
}

// SnapshotRequest asks for a snapshot.
type SnapshotRequest struct {
	Name string       // of [a-z0-9._-], 1 to 64 bytes, not in use by the tenant; may be empty
	Kind SnapshotKind // empty = SnapshotFiles
}

// SnapshotInfo is what is known of a snapshot.
type SnapshotInfo struct {
	ID      string // "sha256:" and 64 hexadecimal digits, of all that it holds
	Name    string
	Kind    SnapshotKind
	Tier    TierName
	Image   string
	Box     ID // of which it is
	Bytes   int64
	Created time.Time
}

// ListSnapshots selects snapshots.
type ListSnapshots struct {
	Box    ID // of this box alone; empty = all
	Cursor string
	Limit  int // 1 to 1000; 0 = 100
}

// ForkRequest asks for copies of a box.
type ForkRequest struct {
	Count    int // 1 to 100
	TTL      time.Duration
	Metadata map[string]string // of each copy, in place of the box's
}

// Forked is one copy, or why there is none.
type Forked struct {
	Info Info
	Err  error
}
