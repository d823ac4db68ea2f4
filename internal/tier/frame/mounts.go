package frame

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host/blockfs"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/image"
)

// Mount is one host folder or file of a box, on its way to the first process.
type Mount struct {
	Target   string
	ReadOnly bool
	// A prepared, detached mount that comes as a file; or, if File is false,
	// a path that the first process clones after checking that it still is the
	// inode that was judged.
	File     bool
	IsDir    bool
	Source   string
	Dev, Ino uint64
}

// Mounts opens every host folder of the box and judges what was opened.
// Root makes detached mounts of exactly those descriptors; an ordinary user
// cannot, and names the inode instead, which the runner checks before it binds
// the path in its own mount namespace.
func (s *Site) Mounts(spec box.Spec, img *image.Image, uid int) ([]Mount, []*os.File, error) {
	var out []Mount
	var trees []*os.File
	for _, m := range slices.Concat(img.Binds, spec.Mounts) {
		own := slices.Contains(img.Binds, m)
		// Whoever writes below the state folder chooses the next box's image.
		refused := append(slices.Clip(spec.NoMount), s.State)
		open := hostfs.OpenResolvedSource // the engine resolved links, and judged where they lead
		if own {
			refused, open = nil, hostfs.OpenMountSource // the image's own folders: /usr and what the operator listed
		}
		f, info, err := open(m.Source, refused)
		if err != nil {
			return out, trees, box.Errorf(box.Denied, "mount", "%w", err)
		}
		if !own {
			err = fits(spec, img, m.Target, info.IsDir())
		}
		if err != nil {
			f.Close()
			return out, trees, err
		}
		sm, tree, err := s.mount(f, info, m, own, uid)
		f.Close()
		if err != nil {
			return out, trees, err
		}
		out = append(out, sm)
		if tree != nil {
			trees = append(trees, tree)
		}
	}
	return out, trees, nil
}

// fits looks at what the image has where something is to be mounted. What lies below
// another mount is not the image's.
func fits(spec box.Spec, img *image.Image, target string, dir bool) error {
	hides := func(other string) bool { return strings.HasPrefix(target, other+"/") }
	if slices.ContainsFunc(spec.Mounts, func(m box.Mount) bool { return hides(m.Target) }) ||
		slices.ContainsFunc(spec.Volumes, func(v box.Volume) bool { return hides(v.Target) }) {
		return nil
	}
	return img.Fits(target, dir)
}

func (s *Site) mount(f *os.File, info fs.FileInfo, m box.Mount, own bool, uid int) (Mount, *os.File, error) {
	sm := Mount{Target: m.Target, ReadOnly: m.ReadOnly || own, IsDir: info.IsDir()}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return sm, nil, fmt.Errorf("cannot mount %s: no inode", m.Source)
	}
	if !s.Root() {
		sm.Source, sm.Dev, sm.Ino = m.Source, uint64(st.Dev), st.Ino
		return sm, nil, nil
	}
	attr := hostfs.MountAttr{ReadOnly: sm.ReadOnly}
	if !own {
		// Whoever owns the source on disk is the box's user through this
		// mount, so that the box can use what its owner could, and what it
		// makes there belongs to that owner.
		attr.Users = []hostfs.IDMap{{From: st.Uid, To: uint32(uid)}}
		attr.Groups = []hostfs.IDMap{{From: st.Gid, To: uint32(uid)}}
	}
	tree, err := hostfs.CloneMount(f, attr)
	if own && err != nil {
		return sm, nil, box.Errorf(box.Unusable, "mount", "%w", err)
	}
	if err != nil {
		return sm, nil, box.Errorf(box.Unusable, "mount", "%w", err).
			WithHint("the file system of %s may not support idmapped mounts; copy what the program needs with --copy", m.Source)
	}
	sm.File = true
	return sm, tree, nil
}

// Volumes mounts the volumes of a box, for its first process to attach. Weak is what
// is not as it should be of the disk that they lie on. A volume is a file system, so
// its size is a wall; for an ordinary user there is none, and nothing in its place.
func (s *Site) Volumes(spec box.Spec, img *image.Image) (out []Mount, trees []*os.File, weak []string, err error) {
	uid, gid := s.HostUser(spec.ID)
	for _, v := range spec.Volumes {
		switch {
		case !s.Root():
			return out, trees, weak, box.Errorf(box.Unsupported, "mount", "cannot use volume %q: an ordinary user gets no loop device to mount it by", v.Name).
				WithHint("run sunaba as root, or leave the volume out")
		case v.Image == nil:
			return out, trees, weak, box.Errorf(box.Fault, "mount", "cannot use volume %q: nobody opened its file", v.Name)
		}
		if err := fits(spec, img, v.Target, true); err != nil {
			return out, trees, weak, box.Errorf(box.KindOf(err), "mount", "cannot use volume %q: %w", v.Name, err).WithHint("choose a place where nothing is, such as /data")
		}
		tree, w, err := blockfs.MountVolume(v.Image, s.StoreDir(), v.ReadOnly, uid, gid)
		if err != nil {
			return out, trees, weak, fmt.Errorf("cannot use volume %q: %w", v.Name, err)
		}
		trees = append(trees, tree)
		out = append(out, Mount{Target: v.Target, ReadOnly: v.ReadOnly, File: true, IsDir: true})
		for _, w := range w {
			weak = append(weak, fmt.Sprintf("volume %s: %s", v.Name, w))
		}
	}
	return out, trees, weak, nil
}

// OpenSame opens a path in this process's mount namespace and makes sure that
// it still is the inode that was judged.
func OpenSame(m Mount) (*os.File, error) {
	f, info, err := hostfs.OpenMountSource(m.Source, nil)
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || uint64(st.Dev) != m.Dev || st.Ino != m.Ino {
		f.Close()
		return nil, fmt.Errorf("cannot mount %s: it was replaced since it was checked", m.Source)
	}
	return f, nil
}
