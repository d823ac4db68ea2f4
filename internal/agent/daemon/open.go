package daemon

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// checkPath refuses what is no absolute path.
func checkPath(p string) error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return wrong("cannot use %s: not an absolute path", shown(p))
	case strings.Contains(p, "\x00"):
		return wrong("cannot use %s: it has a NUL byte", shown(p))
	}
	return nil
}

// handle pins what a path leads to: it can then be looked at, and is neither
// read nor, if it is a pipe or a device, opened. The links of /proc that lead
// to open files, past all names, are not followed.
func handle(at int, p string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(unix.O_PATH | unix.O_CLOEXEC | flags), Resolve: unix.RESOLVE_NO_MAGICLINKS}
	fd, err := retry(func() (int, error) { return unix.Openat2(at, p, &how) })
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) { // gVisor's knows some of it, or nothing
		fd, err = retry(func() (int, error) { return unix.Openat(at, p, unix.O_PATH|unix.O_CLOEXEC|flags, 0) })
	}
	return fd, err
}

// openFile opens a regular file for reading, and what is none not at all. It
// fills in what the file is.
func openFile(p string, st *unix.Stat_t) (*os.File, error) {
	fd, err := handle(unix.AT_FDCWD, p, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return reopen(fd, p, st)
}

// reopen opens what a handle pins, if that is a regular file.
func reopen(fd int, p string, st *unix.Stat_t) (*os.File, error) {
	if err := unix.Fstat(fd, st); err != nil {
		return nil, err
	}
	if err := regular(st, p); err != nil {
		return nil, err
	}
	// This link leads to the very inode. Without O_NONBLOCK a lease would hold us.
	n, err := retry(func() (int, error) {
		return unix.Open(fdPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), p), nil
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// regular refuses what has no contents to read or replace, by its name.
func regular(st *unix.Stat_t, p string) error {
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		return nil
	}
	return wrong("cannot open %s: it is %s, not a regular file", shown(p), kindName(st.Mode))
}

func kindName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a named pipe"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return "of an unknown kind"
}

func kindOf(mode uint32) pb.Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return pb.Kind_KIND_FILE
	case unix.S_IFDIR:
		return pb.Kind_KIND_DIR
	case unix.S_IFLNK:
		return pb.Kind_KIND_LINK
	}
	return pb.Kind_KIND_OTHER
}

// entry describes what was looked at.
func entry(p string, st *unix.Stat_t) *pb.Entry {
	return &pb.Entry{
		Path: []byte(p), Kind: kindOf(st.Mode), Size: uint64(max(st.Size, 0)), Mode: st.Mode & 0o7777,
		Uid: st.Uid, Gid: st.Gid, ModifiedUnixNanos: st.Mtim.Nano(),
	}
}

// readLink is what a symbolic link says; name is empty for the handle itself.
func readLink(at int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := retry(func() (int, error) { return unix.Readlinkat(at, name, buf) })
	return string(buf[:max(n, 0)]), err
}

// maxLinks is how many symbolic links a path may lead through: path_resolution(7).
const maxLinks = 40

// place is where a file is or would be: a folder, held open, and a name in it
// that is not a symbolic link.
type place struct {
	dir  int
	name string
	st   *unix.Stat_t // of what has the name; nil if nothing does
}

func (pl *place) close() { unix.Close(pl.dir) }

// placeOf finds where writing to a path leads: through symbolic links, as
// open(2) goes, but a link that leads to nothing is an error.
func placeOf(p string) (*place, error) {
	at, rest := unix.AT_FDCWD, p
	for range maxLinks {
		dir, name := path.Split(rest)
		if name == "" || name == "." || name == ".." {
			closeUnless(at, unix.AT_FDCWD)
			return nil, unix.EISDIR
		}
		if dir == "" {
			dir = "."
		}
		d, err := handle(at, dir, unix.O_DIRECTORY)
		closeUnless(at, unix.AT_FDCWD)
		if err != nil {
			if rest != p {
				err = fmt.Errorf("the link leads to %s: %w", shown(rest), err)
			}
			return nil, err
		}
		var st unix.Stat_t
		err = unix.Fstatat(d, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case errors.Is(err, unix.ENOENT) && rest == p:
			return &place{d, name, nil}, nil
		case errors.Is(err, unix.ENOENT):
			unix.Close(d)
			return nil, wrong("cannot write %s: it is a link to %s, which does not exist", shown(p), shown(rest))
		case err != nil:
			unix.Close(d)
			return nil, err
		case st.Mode&unix.S_IFMT != unix.S_IFLNK:
			return &place{d, name, &st}, nil
		}
		if rest, err = readLink(d, name); err != nil {
			unix.Close(d)
			return nil, err
		}
		at = d
	}
	closeUnless(at, unix.AT_FDCWD)
	return nil, unix.ELOOP
}

func closeUnless(fd, not int) {
	if fd != not {
		unix.Close(fd)
	}
}
