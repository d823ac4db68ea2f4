package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// weakApart is what a box reports where a folder cannot be set apart.
const weakApart = "files: programs can see when a file of %s is used outside the box, and can lock it: %s"

// apart shows a folder that is mounted at a place of the new root through an
// overlay of nothing, in its stead: file contents are shared with whoever else
// uses the folder, inodes are not. Locks (flock(2), fcntl(2)) and watches
// (inotify(7)) belong to inodes. Through the inodes of the host a program could
// watch which programs the host runs, and let those wait that lock a file.
//
// It is a matter of the kernel and of the folder's file system whether this can
// be had; see overlayfs in the kernel's documentation. Where it cannot, the
// folder stays as it is, and weak says so.
func (b *builder) apart(path string) error {
	within := func(why string) error {
		b.weak = append(b.weak, fmt.Sprintf(weakApart, path, why))
		return nil
	}
	place := filepath.Join(b.root, path)
	more, err := mountedBelow(place)
	if err != nil {
		return err
	}
	if more {
		return within("other file systems are mounted in it")
	}
	// A relative name is short, and tells nothing in the box's list of mounts.
	if err := unix.Chdir(b.c.Dir); err != nil {
		return err
	}
	lower := strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(filepath.Join("root", path)) + ":nothing"
	over, err := newMount("overlay", map[string]string{"lowerdir": lower}, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return within(err.Error())
	}
	defer over.Close()
	// It has its own hold of what it shows.
	if err := unix.Unmount(place, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot unmount %s: %w", path, err)
	}
	return b.attach(over, path)
}

// mountedBelow reports whether something is mounted in a folder.
func mountedBelow(dir string) (bool, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("cannot read mounts: %w", err)
	}
	dir = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(dir) // proc_pid_mountinfo(5)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			return true, nil
		}
	}
	return false, nil
}
