// Package jail builds the file system that a box of the process tier sees, from
// inside the box's fresh namespaces, and makes it the root.
//
// The caller is PID 1 of those namespaces, with CAP_SYS_ADMIN over them and
// over nothing else. What comes in from the host comes as detached mounts or as
// paths that are cloned first; nothing is ever created in a folder of the host.
// Everything is nosuid, and nodev but for the handful of device files that
// are bound one by one. The old root is unmounted in the end, so that there is
// no way back to it by any name.
package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
)

// Config says what the jail consists of.
type Config struct {
	Dir  string   // a folder of the box's own, used as mount point; may hold nothing else called root, store, nothing or points
	Root *os.File // detached mount of the image; made read-only here
	// RootApart says that the root is a folder that others use, too. It is
	// shown through a file system of the box's own; see apart.
	RootApart bool
	// Store is a detached, empty file system for everything writable. Without
	// one a tmpfs with the given size and number of inodes is made.
	Store      *os.File
	StoreBytes int64
	StoreFiles int64
	Kept       bool     // the store has been a box's: the writable places are in it, and stay as they are
	Devices    *os.File // of Devices; nil for the host's own
	Writable   []Writable
	Binds      []Bind
	ShmBytes   int64
	Hostname   string
}

// Writable is a folder of the image that gets its own place in the store.
type Writable struct {
	Path string
	Mode uint32 // as in 0o1777
}

// Bind shows a host folder or file.
type Bind struct {
	Tree   *os.File // detached mount, attributes set
	Target string
	Apart  bool // see Config.RootApart
}

// Build makes the jail and enters it, and says in words what this host could not
// give. On an error the process is in no state to go on.
func Build(c Config) (weak []string, err error) {
	b := builder{c: c, root: filepath.Join(c.Dir, "root"), store: filepath.Join(c.Dir, "store")}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"hostname", b.name},
		{"loopback interface", loopbackUp},
		{"ports", openPorts},
		{"watches", b.watches},
		{"devices", b.takeDevices},
		{"root", b.mountRoot},
		{"store", b.mountStore},
		{"proc", b.mountProc},
		{"dev", b.mountDev},
		{"sys", b.mountSys},
		{"host folders", b.mountBinds},
		{"new root", b.pivot},
	} {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("cannot set up %s: %w", step.what, err)
		}
	}
	return b.weak, nil
}

type builder struct {
	c           Config
	root, store string
	devices     string // where the box's own device files are; "" for the host's
	weak        []string
	empty       string // where in the new root the empty folder is mounted; "" before the first
}

// at opens a place in the new root without following a link anywhere: an image
// whose /proc is a link leads nowhere (CVE-2019-19921 and its kin).
func (b *builder) at(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, filepath.Join(b.root, path), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open %s of the image: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// attach moves a detached mount onto a place in the new root.
func (b *builder) attach(tree *os.File, path string) error {
	at, err := b.at(path)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := unix.MoveMount(int(tree.Fd()), "", int(at.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("cannot mount on %s: %w", path, err)
	}
	return nil
}

func (b *builder) mountRoot() error {
	for _, d := range []string{b.root, b.store, filepath.Join(b.c.Dir, "nothing")} {
		if err := os.Mkdir(d, 0o700); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if err := setAttr(b.c.Root, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return err
	}
	if err := hostfs.MoveMount(b.c.Root, b.root); err != nil {
		return err
	}
	switch places, err := b.missing(); {
	case err != nil:
		return err
	case len(places) > 0:
		return b.addPlaces(places) // and apart with that
	case b.c.RootApart:
		return b.apart("/")
	}
	return nil
}

// mountStore mounts the writable file system aside and binds one folder of it
// for each writable place.
func (b *builder) mountStore() error {
	store := b.c.Store
	if store == nil {
		var err error
		if store, err = newMount("tmpfs", map[string]string{
			"size": fmt.Sprint(b.c.StoreBytes), "nr_inodes": fmt.Sprint(b.c.StoreFiles), "mode": "0755",
		}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
			return err
		}
		defer store.Close()
	}
	if err := hostfs.MoveMount(store, b.store); err != nil {
		return err
	}
	for i, w := range b.c.Writable {
		part := filepath.Join(b.store, fmt.Sprint(i))
		if b.c.Kept {
			if err := b.bind(part, w.Path, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
				return err
			}
			continue
		}
		if err := os.Mkdir(part, 0o700); err != nil && !os.IsExist(err) {
			return err
		}
		if err := unix.Chmod(part, w.Mode); err != nil { // umask does not apply
			return fmt.Errorf("cannot set mode of %s: %w", w.Path, err)
		}
		if err := b.bind(part, w.Path, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
			return err
		}
	}
	return nil
}

// bind clones a path of the present root and attaches it in the new one.
func (b *builder) bind(source, target string, attrs uint64) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("cannot clone %s: %w", source, err)
	}
	tree := os.NewFile(uintptr(fd), source)
	defer tree.Close()
	if attrs != 0 {
		if err := setAttr(tree, attrs); err != nil {
			return err
		}
	}
	return b.attach(tree, target)
}

func (b *builder) mountBinds() error {
	for _, m := range b.c.Binds {
		if err := b.point(m); err != nil {
			return err
		}
		if err := b.attach(m.Tree, m.Target); err != nil {
			return err
		}
		if !m.Apart {
			continue
		}
		if err := b.apart(m.Target); err != nil {
			return err
		}
	}
	return nil
}

// point makes the place for a bind below a writable folder, which is empty now;
// what lies elsewhere is in the image.
func (b *builder) point(m Bind) error {
	for _, w := range b.c.Writable {
		rel, ok := strings.CutPrefix(m.Target, strings.TrimSuffix(w.Path, "/")+"/")
		if !ok {
			continue
		}
		dir, err := os.OpenRoot(filepath.Join(b.root, w.Path)) // links lead nowhere
		if err != nil {
			return err
		}
		defer dir.Close()
		st, err := m.Tree.Stat()
		if err != nil {
			return err
		}
		if st.IsDir() {
			return dir.MkdirAll(rel, 0o755)
		}
		if err := dir.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
			return err
		}
		f, err := dir.OpenFile(rel, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return nil
}

// pivot makes the new root the root and forgets the old one; pivot_root(2),
// "pivot_root(".", ".")".
func (b *builder) pivot() error {
	if err := unix.Chdir(b.root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot pivot: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot unmount the old root: %w", err)
	}
	return unix.Chdir("/")
}

func setAttr(tree *os.File, attrs uint64) error {
	set := unix.MountAttr{Attr_set: attrs, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &set); err != nil {
		return fmt.Errorf("cannot set attributes of mount %s: %w", tree.Name(), err)
	}
	return nil
}

// newMount makes a detached file system of a type, by the file descriptor
// interface (fsopen(2)): each wrong option is an error of its own.
func newMount(fstype string, opts map[string]string, attrs int) (*os.File, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot open file system type %s: %w", fstype, err)
	}
	defer unix.Close(fs)
	for k, v := range opts {
		if err := unix.FsconfigSetString(fs, k, v); err != nil {
			return nil, fmt.Errorf("cannot set %s=%s of %s: %w", k, v, fstype, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("cannot make file system %s: %w", fstype, err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return nil, fmt.Errorf("cannot mount %s: %w", fstype, err)
	}
	return os.NewFile(uintptr(mnt), fstype), nil
}
