package process

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
	"github.com/sunaba-dev/sunaba/internal/stream"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

// copied is what a box is made of that is made from a snapshot.
type copied struct {
	own   own
	image string
	store *os.File
}

// Restore implements box.Restorer. The bytes of the store are believed as far as
// the kernel believes those of any ext4 that it mounts: that they are the ones
// that came from Snapshot was made sure of by whoever gives them.
func (t *Tier) Restore(ctx context.Context, spec box.Spec, s *box.Snapshot) (box.Box, error) {
	const op = "restore box"
	switch {
	case s.Tier != box.TierProcess:
		return nil, box.Errorf(box.Conflict, op, "cannot make a box from this copy: it is of tier %s", s.Tier)
	case s.Kind != box.SnapshotFiles:
		return nil, box.Errorf(box.Unsupported, op, "cannot make a box from this copy: tier process makes none from what ran, only from files")
	case s.Needs[needsStore] != blockfs.Format:
		return nil, box.Errorf(box.Conflict, op, "cannot make a box from this copy: it needs a store of format %q, and this version has %q", s.Needs[needsStore], blockfs.Format)
	case !t.Root():
		return nil, box.Errorf(box.Conflict, op, "cannot make a box from this copy: it needs a store of format %q, and an ordinary user's boxes have theirs in memory", blockfs.Format).
			WithHint("run sunaba as root")
	case !spec.Lasting:
		return nil, box.Errorf(box.Invalid, op, "cannot make a box from this copy: it would not last")
	case len(s.Parts) != 1 || s.Parts[storePart] == nil:
		return nil, box.Errorf(box.Conflict, op, "cannot make a box from this copy: its parts are not those of a store")
	}
	c := &copied{image: s.Needs[needsImage], store: s.Parts[storePart]}
	if err := json.Unmarshal(s.Own, &c.own); err != nil {
		return nil, box.Errorf(box.Conflict, op, "cannot make a box from this copy: %w", err)
	}
	if c.own.Disk == 0 || c.own.Disk == math.MaxUint32 { // root's, or nobody's
		return nil, box.Errorf(box.Conflict, op, "cannot make a box from this copy: its files are user %d's", c.own.Disk)
	}
	if err := frame.AsMade(c.own.Made, spec); err != nil {
		return nil, err
	}
	return t.create(ctx, spec, c)
}

// fits refuses another image than the one of the copied box.
func (c *copied) fits(image string) error {
	if c == nil || c.image == image {
		return nil
	}
	return box.Errorf(box.Conflict, "restore box", "cannot make a box from this copy: it needs image %s, and that is %s now", c.image, image)
}

// makeStore makes a box's store: empty, or of what was copied.
func (t *Tier) makeStore(ctx context.Context, l box.Limits, b *pbox, uid, gid int) (err error) {
	var weak []string
	if c := b.from; c != nil {
		b.disk = c.own.Disk
		dump := stream.While(ctx, io.NewSectionReader(c.store, 0, math.MaxInt64))
		b.fs, weak, err = blockfs.RestoreStore(t.StoreDir(), dump, l.Disk, l.Files, c.own.Disk, uid, gid)
		if err != nil {
			return fmt.Errorf("cannot make a box from this copy: %w", err)
		}
	} else {
		b.disk = uint32(uid)
		if b.fs, weak, err = blockfs.NewStore(t.StoreDir(), l.Disk, l.Files, uid, gid); err != nil {
			return err
		}
	}
	b.Weaker = append(b.Weaker, weak...)
	return nil
}
