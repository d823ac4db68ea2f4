package client

import (
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// BoxDocument is a box as the daemon tells of it, and as a program that shows what it
// was told writes it.
type BoxDocument struct {
	ID         box.ID            `json:"id"`
	Phase      box.Phase         `json:"phase"`
	Reason     box.Reason        `json:"reason,omitempty"`
	Detail     string            `json:"detail,omitempty"`
	Tier       box.TierName      `json:"tier"`
	TierReason string            `json:"tier_reason"`
	Image      string            `json:"image"`
	Weak       []string          `json:"weak"`
	Start      box.StartKind     `json:"start"`
	StartWhy   string            `json:"start_reason"`
	Policy     box.Policy        `json:"policy"`
	Metadata   map[string]string `json:"metadata"`
	Created    time.Time         `json:"created_at"`
	Ends       *time.Time        `json:"ends_at"`
	IdleSec    float64           `json:"idle_sec"`
	OnIdle     box.IdleAction    `json:"on_idle"`
	Paused     *time.Time        `json:"paused_at"`
	Destroyed  *time.Time        `json:"destroyed_at"`
	Limits     []box.LimitHit    `json:"limits_hit"`
	Usage      box.UsageJSON     `json:"usage"`
	Principal  string            `json:"principal"`
}

// DocumentOfBox writes down what is known of a box.
func DocumentOfBox(i box.Info) BoxDocument {
	when := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return BoxDocument{
		ID: i.ID, Phase: i.Phase, Reason: i.Reason, Detail: i.Detail, Tier: i.Tier, TierReason: i.TierReason, Image: i.Image, Weak: i.Weak,
		Start: i.Start, StartWhy: i.StartReason, Policy: i.Policy, Metadata: i.Metadata, Created: i.Created, Ends: when(i.Ends),
		IdleSec: i.Idle.Seconds(), OnIdle: i.OnIdle, Paused: when(i.Paused), Destroyed: when(i.Destroyed), Limits: i.Limits, Principal: i.Principal,
		Usage: box.UsageJSON{CPUSeconds: i.Usage.CPU.Seconds(), WallSeconds: i.Usage.Wall.Seconds(), MemoryPeakBytes: i.Usage.MemoryPeak, BytesWritten: i.Usage.Written},
	}
}

func (b BoxDocument) info() (box.Info, error) {
	if !b.ID.Valid() {
		return box.Info{}, wrong("%q is no box", b.ID)
	}
	at := func(t *time.Time) (none time.Time) {
		if t == nil {
			return none
		}
		return *t
	}
	return box.Info{
		ID: b.ID, Principal: b.Principal, Phase: b.Phase, Reason: b.Reason, Detail: b.Detail, Tier: b.Tier, TierReason: b.TierReason,
		Image: b.Image, Weak: b.Weak, Start: b.Start, StartReason: b.StartWhy, Policy: b.Policy, Metadata: b.Metadata,
		Created: b.Created, Ends: at(b.Ends), Paused: at(b.Paused), Destroyed: at(b.Destroyed), Idle: seconds(b.IdleSec), OnIdle: b.OnIdle, Limits: b.Limits,
		Usage: box.Usage{CPU: seconds(b.Usage.CPUSeconds), Wall: seconds(b.Usage.WallSeconds), MemoryPeak: b.Usage.MemoryPeakBytes, Written: b.Usage.BytesWritten},
	}, nil
}

// SnapshotDocument is a snapshot, likewise.
type SnapshotDocument struct {
	ID      string           `json:"id"`
	Name    string           `json:"name"`
	Kind    box.SnapshotKind `json:"kind"`
	Tier    box.TierName     `json:"tier"`
	Image   string           `json:"image"`
	Box     box.ID           `json:"box"`
	Bytes   int64            `json:"bytes"`
	Created time.Time        `json:"created_at"`
}

// DocumentOfSnapshot writes down what is known of a snapshot.
func DocumentOfSnapshot(i box.SnapshotInfo) SnapshotDocument {
	return SnapshotDocument{i.ID, i.Name, i.Kind, i.Tier, i.Image, i.Box, i.Bytes, i.Created}
}

func (s SnapshotDocument) info() (box.SnapshotInfo, error) {
	if !strings.HasPrefix(s.ID, "sha256:") {
		return box.SnapshotInfo{}, wrong("%q is no snapshot", s.ID)
	}
	return box.SnapshotInfo{ID: s.ID, Name: s.Name, Kind: s.Kind, Tier: s.Tier, Image: s.Image, Box: s.Box, Bytes: s.Bytes, Created: s.Created}, nil
}

// VolumeDocument is a volume, likewise.
type VolumeDocument struct {
	Name    string    `json:"name"`
	Bytes   int64     `json:"bytes"`
	Used    int64     `json:"used_bytes"`
	Boxes   []box.ID  `json:"boxes"`
	Created time.Time `json:"created_at"`
}

// DocumentOfVolume writes down what is known of a volume.
func DocumentOfVolume(i box.VolumeInfo) VolumeDocument {
	if i.Boxes == nil {
		i.Boxes = []box.ID{}
	}
	return VolumeDocument{i.Name, i.Bytes, i.Used, i.Boxes, i.Created}
}

func (v VolumeDocument) info() (box.VolumeInfo, error) {
	if v.Name == "" || v.Bytes < 0 {
		return box.VolumeInfo{}, wrong("%q of %d bytes is no volume", v.Name, v.Bytes)
	}
	for _, id := range v.Boxes {
		if !id.Valid() {
			return box.VolumeInfo{}, wrong("%q is no box", id)
		}
	}
	return box.VolumeInfo{Name: v.Name, Bytes: v.Bytes, Used: v.Used, Boxes: v.Boxes, Created: v.Created}, nil
}
