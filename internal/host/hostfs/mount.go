package hostfs

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host/hostfs/parked"
)

// IDMap lets files that are owned by user (or group) From on disk appear as
// owned by To through a mount, and stores files made through the mount by To as
// From's. Other owners appear as the overflow id and cannot be made.
type IDMap struct{ From, To uint32 }

// MountAttr says what a cloned mount may do. Device nodes and set-user-ID bits
// never work in one.
type MountAttr struct {
	ReadOnly bool
	NoExec   bool
	// Recursive takes along the file systems mounted below, with the same
	// attributes. It needs care: what they are was judged by
	// [OpenMountSource] some time ago.
	Recursive bool
	// Users and Groups, both or neither, make the mount idmapped. That needs
	// CAP_SYS_ADMIN over the file system, in practice real root, and a file
	// system that supports it (ext4, xfs, btrfs, tmpfs since 6.3, and more).
	Users, Groups []IDMap
}

// CloneMount makes a detached mount of exactly what an O_PATH descriptor refers
// to; the name that once led there plays no part. The mount goes away when the
// file is closed, unless [MoveMount] attached it. The caller owns its mount
// namespace (CAP_SYS_ADMIN) and source lies in that namespace.
func CloneMount(source *os.File, attr MountAttr) (*os.File, error) {
	f, err := cloneMount(source, attr)
	if err != nil {
		return nil, fmt.Errorf("cannot clone mount of %s: %w", source.Name(), err)
	}
	return f, nil
}

func cloneMount(source *os.File, attr MountAttr) (*os.File, error) {
	var recursive uint
	if attr.Recursive {
		recursive = unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(int(source.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|recursive)
	if err != nil {
		return nil, fmt.Errorf("open_tree: %w", err)
	}
	tree := os.NewFile(uintptr(fd), source.Name())
	if err := setMount(tree, attr); err != nil {
		tree.Close()
		return nil, err
	}
	return tree, nil
}

// SetMount does to a mount that was never attached what [CloneMount] does to its
// clone. Before Linux 6.15 no such mount can be cloned.
func SetMount(mount *os.File, attr MountAttr) error {
	if err := setMount(mount, attr); err != nil {
		return fmt.Errorf("cannot set what mount of %s may do: %w", mount.Name(), err)
	}
	return nil
}

func setMount(tree *os.File, attr MountAttr) error {
	if (len(attr.Users) == 0) != (len(attr.Groups) == 0) {
		return errors.New("users and groups must be mapped together")
	}
	var recursive uint
	if attr.Recursive {
		recursive = unix.AT_RECURSIVE
	}
	set := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if attr.ReadOnly {
		set.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if attr.NoExec {
		set.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	if len(attr.Users) > 0 {
		ns, err := userNamespace(attr.Users, attr.Groups)
		if err != nil {
			return err
		}
		defer ns.Close()
		set.Attr_set |= unix.MOUNT_ATTR_IDMAP
		set.Userns_fd = uint64(ns.Fd())
	}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH|recursive, &set); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

// userNamespace makes a user namespace that stands for a mapping. In an
// idmapped mount the id on disk is the one inside the namespace, and the one
// outside is what the mount shows.
func userNamespace(users, groups []IDMap) (*os.File, error) {
	mapping := func(maps []IDMap) (out []syscall.SysProcIDMap) {
		for _, m := range maps {
			out = append(out, syscall.SysProcIDMap{ContainerID: int(m.From), HostID: int(m.To), Size: 1})
		}
		return out
	}
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: mapping(users),
		GidMappings: mapping(groups),
	}
	var ns *os.File
	err := parked.Run(attr, func(pid int) (err error) {
		ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a user namespace for the mapping: %w", err)
	}
	return ns, nil
}

// MoveMount attaches a mount made by [CloneMount] at a path, whose last
// component may not be a link. The mount then lasts until it is unmounted or
// its mount namespace ends; the file may be closed.
func MoveMount(mount *os.File, target string) error {
	at, _, err := openHandle(target, unix.O_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("cannot mount on %s: %w", target, err)
	}
	defer at.Close()
	err = unix.MoveMount(int(mount.Fd()), "", int(at.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("cannot mount on %s: %w", target, err)
	}
	return nil
}
