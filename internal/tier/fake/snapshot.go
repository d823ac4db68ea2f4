package fake

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sunaba-dev/sunaba/box"
)

// Names in a snapshot: its only part, and what it needs.
const (
	filesPart = "files.tar"
	formNeed  = "form"
	form      = "1"
)

// Snappable implements box.Snapshotter: processes of this host cannot be copied.
func (l *Lasting) Snappable(kind box.SnapshotKind) error {
	if kind == box.SnapshotFiles {
		return nil
	}
	return box.Errorf(box.Unsupported, "snapshot box", "cannot copy the memory of box %s: the fake tier has none of its own", l.st.ID)
}

// Snapshot implements box.Snapshotter. It copies folders, regular files and links of
// the working folder, and does not stop the box: nothing here is promised of
// files that are being written.
func (l *Lasting) Snapshot(ctx context.Context, kind box.SnapshotKind, put func(string, io.Reader) error) (box.SnapshotHead, error) {
	if err := l.Snappable(kind); err != nil {
		return box.SnapshotHead{}, err
	}
	own, err := json.Marshal(l.st.Workdir)
	if err != nil {
		return box.SnapshotHead{}, err
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		t := tar.NewWriter(w)
		w.CloseWithError(errors.Join(t.AddFS(os.DirFS(l.work())), t.Close(), ctx.Err()))
	}()
	return box.SnapshotHead{Kind: kind, Tier: Name, Needs: map[string]string{formNeed: form}, Own: own}, put(filesPart, r)
}

// Restore implements box.Restorer.
func (t *Tier) Restore(ctx context.Context, spec box.Spec, sn *box.Snapshot) (box.Box, error) {
	var workdir string
	part := sn.Parts[filesPart]
	switch {
	case sn.Needs[formNeed] != form:
		return nil, box.Errorf(box.Conflict, "create box", "cannot use snapshot: it is of form %q, and this build has %q", sn.Needs[formNeed], form)
	case sn.Kind != box.SnapshotFiles || part == nil:
		return nil, box.Errorf(box.Unusable, "create box", "cannot use snapshot: it has no files")
	case json.Unmarshal(sn.Own, &workdir) != nil || workdir != spec.Workdir:
		return nil, box.Errorf(box.Conflict, "create box", "cannot use snapshot: its working folder was %q, and that of the box is %q", workdir, spec.Workdir)
	}
	return t.create(ctx, spec, func(b *Box) error { return b.unpack(io.NewSectionReader(part, 0, 1<<40)) })
}

// unpack fills the working folder, whose names cannot lead out of it.
func (b *Box) unpack(r io.Reader) error {
	root, err := os.OpenRoot(b.work())
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackOne(root, h, t)
		}
		if err != nil {
			return fmt.Errorf("cannot unpack snapshot: %w", err)
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, r io.Reader) error {
	name, mode := filepath.Clean(h.Name), fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		return root.Mkdir(name, mode)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("%q is of a kind that is not kept", h.Name)
}
