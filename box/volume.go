package box

import (
	"context"
	"os"
	"time"
)

// Volume is a file system that outlives boxes. One box at a time has it; any
// number may have it if all do so read-only.
type Volume struct {
	Name     string `json:"name"`
	Target   string `json:"container"` // absolute, clean path in the box
	ReadOnly bool   `json:"read_only"`
	// Image is the file that it lies in, open and locked (flock(2)) by whoever
	// made the Spec; the box's kernel holds it, and with it the lock, for as
	// long as the volume is mounted anywhere.
	Image *os.File `json:"-"`
}

// VolumeService is the part of a [Service] that keeps volumes.
type VolumeService interface {
	// CreateVolume makes an empty volume. One of this name and size that is there
	// already is no error; of another size it is Conflict.
	CreateVolume(ctx context.Context, c Caller, name string, bytes int64) (VolumeInfo, error)
	Volumes(context.Context, Caller) ([]VolumeInfo, error)
	InspectVolume(ctx context.Context, c Caller, name string) (VolumeInfo, error)
	// DeleteVolume removes a volume and what is in it. One that a box has is
	// Conflict, with the box.
	DeleteVolume(ctx context.Context, c Caller, name string) error
}

// VolumeInfo is what is known of a volume.
type VolumeInfo struct {
	Name    string
	Bytes   int64 // its size; what is in it is at most that
	Used    int64 // bytes of the host's disk; -1 if that is not known
	Boxes   []ID  // that have it now
	Created time.Time
}
