package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// The versions that a copy is tied to.
const (
	needsImage     = "image"
	needsKernel    = "gvisor"
	needsAgent     = "agent"
	needsProcessor = "processor"
)

// copySlack is what the files of a copy may have beside the guest's memory and its
// disk: what its kernel says of itself.
const copySlack = 256 << 20

// copyTime bounds the copying of a guest, at the disk's speed.
const copyTime = 3 * time.Minute

// own is what this tier says of a snapshot.
type own struct {
	Made  json.RawMessage // see frame.Made
	Lossy bool            // a copy of the copied box's files would be without something
}

// Snappable implements box.Snapshotter.
func (b lastingBox) Snappable(kind box.SnapshotKind) error {
	const op = "snapshot box"
	switch {
	case kind == box.SnapshotFiles:
		return nil
	case kind != box.SnapshotMemory:
		return box.Errorf(box.Invalid, op, "cannot copy box %s: a snapshot is of files or memory, not of %q", b.Spec.ID, kind)
	case b.Spec.Image == box.ImageHost:
		return box.Errorf(box.Unsupported, op, "cannot copy what runs in box %s: its image is the host's own files, which change under a copy", b.Spec.ID).
			WithHint("use image base, or take a snapshot of the files")
	case len(b.Spec.Mounts) > 0:
		return box.Errorf(box.Unsupported, op, "cannot copy what runs in box %s: it has folders of the host, whose files change under a copy", b.Spec.ID).
			WithHint("make the box without mounts, or take a snapshot of the files")
	case len(b.Spec.Volumes) > 0:
		return box.Errorf(box.Unsupported, op, "cannot copy what runs in box %s: it has volume %q, of which a copy could only be another box's reader or writer", b.Spec.ID, b.Spec.Volumes[0].Name).
			WithHint("take a snapshot of the files: a box that is made from it has the volume as it is then")
	}
	return nil
}

// Snapshot implements box.Snapshotter. The guest's kernel writes the copy to files
// without a name, goes on, and then they are handed out. It might hold them still.
func (b lastingBox) Snapshot(ctx context.Context, kind box.SnapshotKind, put func(string, io.Reader) error) (box.SnapshotHead, error) {
	var none box.SnapshotHead
	if err := b.Snappable(kind); err != nil {
		return none, err
	}
	names, op, hint := partsOf(kind), "snapshot", "a program that has it, or keeps the agent from closing it, must end; or take a snapshot of the files"
	if kind == box.SnapshotFiles {
		op, hint = "snapshot files", "take a snapshot of the memory, which has all of it"
	}
	var got saved
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	files, err := b.Conn.CallForFiles(ctx, len(names), op, struct{}{}, &got)
	if box.KindOf(err) == box.Conflict {
		return none, box.Errorf(box.Conflict, "snapshot box", "cannot copy box %s: %w", b.Spec.ID, err).
			WithHint("%s", hint)
	}
	if err != nil {
		return none, box.Errorf(box.Unavailable, "snapshot box", "cannot copy box %s: its runner says: %w", b.Spec.ID, err)
	}
	defer frame.CloseAll(files)
	head, err := b.head(kind, got)
	if err != nil {
		return none, err
	}
	room := b.Spec.Limits.Memory + b.Spec.Limits.Disk + copySlack
	for i, f := range files {
		st, err := f.Stat()
		switch {
		case err != nil:
			return none, fmt.Errorf("cannot look at a copy of box %s: %w", b.Spec.ID, err)
		case !st.Mode().IsRegular():
			return none, box.Errorf(box.Fault, "snapshot box", "cannot copy box %s: what came is no file", b.Spec.ID)
		}
		if room -= st.Size(); room < 0 {
			return none, box.Errorf(box.Exhausted, "snapshot box", "cannot copy box %s: the copy is larger than its memory and disk", b.Spec.ID)
		}
		if err := put(names[i], stream.While(ctx, io.NewSectionReader(f, 0, st.Size()))); err != nil {
			return none, err
		}
	}
	return head, nil
}

func (b lastingBox) head(kind box.SnapshotKind, got saved) (box.SnapshotHead, error) {
	made, err := frame.Made(b.Spec)
	if err != nil {
		return box.SnapshotHead{}, err
	}
	raw, err := json.Marshal(own{Made: made, Lossy: got.Lossy})
	return box.SnapshotHead{Kind: kind, Tier: box.TierGvisor, Needs: b.needs(kind), Own: raw}, err
}

// needs are the versions that a copy of this box is tied to: files to the image below
// them, and to the guest's kernel, whose own format theirs is.
func (b *gbox) needs(kind box.SnapshotKind) map[string]string {
	if kind == box.SnapshotFiles {
		return map[string]string{needsImage: b.Image, needsKernel: b.versions.Kernel}
	}
	return map[string]string{
		needsImage: b.Image, needsKernel: b.versions.Kernel, needsAgent: b.versions.Agent, needsProcessor: b.versions.Processor,
	}
}

// versions are of what a box was made of.
type versions struct{ Kernel, Agent, Processor string }

func (t *Tier) findVersions() (versions, error) {
	v := versions{Kernel: kernelVersion(), Processor: processor()}
	sum := sha256.New()
	for _, p := range []*io.SectionReader{t.cfg.Agent, t.cfg.Daemon} {
		if p != nil {
			if _, err := io.Copy(sum, io.NewSectionReader(p, 0, p.Size())); err != nil {
				return v, fmt.Errorf("cannot read the agent: %w", err)
			}
		}
	}
	v.Agent = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return v, nil
}

// kernelVersion is of the library that this program was built with; what it writes
// is read by the same alone.
func kernelVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "gvisor.dev/gvisor" })
	if i < 0 {
		return "unknown"
	}
	return info.Deps[i].Version
}

// processor is a digest of what programs were told of the processor's features.
func processor() string {
	cpuid.Initialize()
	sum := sha256.Sum256([]byte(cpuid.HostFeatureSet().FlagString()))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// copied is what a box is made of that is made from a snapshot.
type copied struct {
	head  box.SnapshotHead
	lossy bool
	parts []*os.File
}

func (c *copied) memory() bool { return c != nil && c.head.Kind == box.SnapshotMemory }
