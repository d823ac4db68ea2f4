package gvisor

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/tier/frame"
)

const opRestore = "restore box"

// Restore implements box.Restorer. The copy is read by the box's own guest kernel,
// behind the same walls as its programs: bytes that were made to hurt it hurt that
// box.
func (t *Tier) Restore(ctx context.Context, spec box.Spec, s *box.Snapshot) (box.Box, error) {
	switch {
	case s.Tier != box.TierGvisor:
		return nil, box.Errorf(box.Conflict, opRestore, "cannot make a box from this copy: it is of tier %s", s.Tier)
	case s.Kind == box.SnapshotFiles:
	case s.Kind != box.SnapshotMemory:
		return nil, box.Errorf(box.Conflict, opRestore, "cannot make a box from this copy: it is of %q", s.Kind)
	case spec.Image == box.ImageHost || len(spec.Mounts) > 0 || len(spec.Volumes) > 0:
		return nil, box.Errorf(box.Unsupported, opRestore, "cannot make a box that goes on with the host's own files, or with a volume")
	}
	if !spec.Lasting {
		return nil, box.Errorf(box.Invalid, opRestore, "cannot make a box from this copy: it would not last")
	}
	c, names := &copied{head: s.SnapshotHead}, partsOf(s.Kind)
	for _, name := range names {
		if s.Parts[name] == nil || len(s.Parts) != len(names) {
			return nil, box.Errorf(box.Conflict, opRestore, "cannot make a box from this copy: its parts are not %s", strings.Join(names, ", "))
		}
		c.parts = append(c.parts, s.Parts[name])
	}
	var o own
	if err := json.Unmarshal(s.Own, &o); err != nil {
		return nil, box.Errorf(box.Conflict, opRestore, "cannot make a box from this copy: %w", err)
	}
	c.lossy = o.Lossy
	if err := frame.AsMade(o.Made, spec); err != nil {
		return nil, err
	}
	return t.create(ctx, spec, c)
}

// fits refuses other versions than those of the copied box.
func (c *copied) fits(b *gbox) error {
	if c == nil {
		return nil
	}
	have := b.needs(c.head.Kind)
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if want := c.head.Needs[name]; want != have[name] {
			return box.Errorf(box.Conflict, opRestore, "cannot make a box from this copy: it needs %s %q, and here is %q", name, want, have[name]).
				WithHint("make a new box, and a snapshot of that")
		}
	}
	if len(c.head.Needs) != len(have) {
		return box.Errorf(box.Conflict, opRestore, "cannot make a box from this copy: it needs %d versions, and this program knows %d", len(c.head.Needs), len(have))
	}
	return nil
}

// pass returns what the runner gets of the copy: descriptors of its own, with an
// offset at the start, to be read.
func (c *copied) pass() (files []*os.File, err error) {
	for _, part := range c.parts {
		f, err := os.Open(fdPath(part))
		if err != nil {
			frame.CloseAll(files)
			return nil, box.Errorf(box.Fault, opRestore, "cannot open a part of the copy: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}
