package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/policy"
)

// judgeMounts looks at what each mount's source really is. Links are followed
// once, here; the path that they lead to replaces the one that was asked for,
// and is judged by name again (a link may lead into a folder whose name is
// refused). The tier opens the same path, compares it with the refused list by
// inode once more, and mounts that very descriptor.
//
// Roots, if not nil, are the only folders below which that path may lie: a box
// that writes into one of them can make links in it, for the next box.
func judgeMounts(mounts []box.Mount, noMount, roots []string) ([]box.Mount, error) {
	out := slices.Clone(mounts)
	for i, m := range out {
		if err := policy.CheckSource(m.Source, m.ReadOnly, noMount); err != nil {
			return nil, refusedMount(m, err)
		}
		f, _, err := hostfs.OpenMountSource(m.Source, refusedFor(noMount, m.ReadOnly))
		if errors.Is(err, hostfs.ErrRefused) {
			return nil, box.Errorf(box.Denied, "mount", "%w", err)
		}
		if err != nil {
			return nil, box.Errorf(box.Invalid, "mount", "%w", err)
		}
		real, err := os.Readlink(host.FDPath(f.Fd()))
		sign := homeSign(f)
		f.Close()
		if err != nil {
			return nil, box.Errorf(box.Fault, "mount", "cannot resolve mount source %s: %w", m.Source, err)
		}
		if err := policy.CheckSource(real, m.ReadOnly, noMount); err != nil {
			return nil, refusedMount(m, err)
		}
		if roots != nil && !listed(real, resolved(roots)) {
			return nil, notListed(m)
		}
		if sign != "" {
			return nil, refusedMount(m, box.Errorf(box.Denied, "mount", "refused: it has %s in it, a place where programs keep keys", sign))
		}
		out[i].Source = real
	}
	return out, nil
}

// resolved are the folders that names lead to; one that leads nowhere has
// nothing below it.
func resolved(names []string) (out []string) {
	for _, n := range names {
		f, _, err := hostfs.OpenMountSource(n, nil)
		if err != nil {
			continue
		}
		if real, err := os.Readlink(host.FDPath(f.Fd())); err == nil {
			out = append(out, real)
		}
		f.Close()
	}
	return out
}

// listed says whether a path is one of the roots or lies below one.
func listed(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || root == "/" || strings.HasPrefix(path, filepath.Clean(root)+"/")
	})
}

func notListed(m box.Mount) error {
	return box.Errorf(box.Denied, "mount", "cannot mount %s: this service shows no folder of its host but those that its operator listed", m.Source).
		WithHint("write the files into the box, or start the daemon with --allow-mount FOLDER")
}

// homeSign names what shows an open folder to be somebody's home, or is empty.
func homeSign(f *os.File) string {
	for _, name := range policy.HomeSigns() {
		if _, err := os.Lstat(host.FDPath(f.Fd()) + "/" + name); err == nil {
			return name
		}
	}
	return ""
}

func refusedMount(m box.Mount, err error) error {
	return box.Errorf(box.KindOf(err), "mount", "cannot mount %s: %w", m.Source, err).
		WithHint("copy what the program needs with --copy, or mount a folder that holds nothing else")
}

// refusedFor lists the paths that are compared by inode. Those refused only as
// a whole are judged by name alone: everything lies below "/".
func refusedFor(noMount []string, readOnly bool) []string {
	refused := slices.Clone(noMount)
	for _, r := range policy.RefusedSources() {
		if !r.Whole && !(r.Write && readOnly) {
			refused = append(refused, r.Path)
		}
	}
	return refused
}
