package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// place is where something will be mounted that the image has no name for.
type place struct {
	path string
	dir  bool
}

// missing lists the places that the image lacks. What lies below a writable
// folder is made in the store, and what lies below a host folder is in that.
func (b *builder) missing() ([]place, error) {
	var all []place
	for _, w := range b.c.Writable {
		all = append(all, place{w.Path, true})
	}
	for _, m := range b.c.Binds {
		below := func(dir string) bool { return strings.HasPrefix(m.Target, strings.TrimSuffix(dir, "/")+"/") }
		if slices.ContainsFunc(b.c.Writable, func(w Writable) bool { return below(w.Path) }) ||
			slices.ContainsFunc(b.c.Binds, func(o Bind) bool { return below(o.Target) }) {
			continue
		}
		st, err := m.Tree.Stat()
		if err != nil {
			return nil, err
		}
		all = append(all, place{m.Target, st.IsDir()})
	}
	var out []place
	for _, p := range all {
		at, err := b.at(p.path)
		if errors.Is(err, unix.ENOENT) {
			out = append(out, p)
			continue
		}
		if err != nil {
			return nil, err
		}
		at.Close()
	}
	return out, nil
}

// addPlaces shows the image with more empty folders and files in it, for an
// image that is the same for everybody (base): an overlay of a small tmpfs over
// the image, neither of which is written to through it.
func (b *builder) addPlaces(places []place) error {
	points, err := newMount("tmpfs", map[string]string{"size": "1m", "nr_inodes": "1024", "mode": "0755"}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer points.Close()
	aside := filepath.Join(b.c.Dir, "points")
	if err := os.Mkdir(aside, 0o700); err != nil {
		return err
	}
	if err := unix.MoveMount(int(points.Fd()), "", unix.AT_FDCWD, aside, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("cannot mount places: %w", err)
	}
	dir, err := os.OpenRoot(aside)
	if err != nil {
		return err
	}
	defer dir.Close()
	modes := map[string]fs.FileMode{}
	for _, p := range places {
		if err := b.addPlace(dir, p, modes); err != nil {
			return fmt.Errorf("cannot make a place for %s: %w", p.path, err)
		}
	}
	// Not before all are made, since a mode may forbid that; the longest names
	// first, since it may forbid to reach them, too.
	names := slices.Sorted(maps.Keys(modes))
	for _, name := range slices.Backward(names) {
		if err := dir.Chmod(name, modes[name]); err != nil {
			return err
		}
	}
	if err := unix.Chdir(b.c.Dir); err != nil { // see apart
		return err
	}
	over, err := newMount("overlay", map[string]string{"lowerdir": "points:root"}, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("cannot make a place for %s, which the image does not have: %w", places[0].path, err)
	}
	defer over.Close()
	if err := unix.Unmount(b.root, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot unmount the image: %w", err)
	}
	return b.attach(over, "/")
}

// addPlace makes one place and the folders above it, and notes the modes that
// these have in the image: an overlay shows the upper one's.
func (b *builder) addPlace(dir *os.Root, p place, modes map[string]fs.FileMode) error {
	parts := strings.Split(strings.Trim(p.path, "/"), "/")
	for i := range parts {
		name := filepath.Join(parts[:i+1]...)
		if i == len(parts)-1 && !p.dir {
			f, err := dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
		if err := dir.Mkdir(name, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
		switch st, err := os.Lstat(filepath.Join(b.root, name)); {
		case err != nil:
			modes[name] = 0o755
		case st.IsDir():
			modes[name] = st.Mode().Perm()
		default:
			return fmt.Errorf("/%s is not a folder", name)
		}
	}
	return nil
}
