// Package hostfs touches files of the host whose names somebody else can change
// while we look.
//
// The rule of the whole package: a name is resolved once, to a descriptor, and
// everything after that (what it is, whose it is, reading, mounting, removing)
// is asked of the descriptor. A check on a path followed by a use of the same
// path is two resolutions, and between them a box with a shared folder, or any
// other user, can put a symbolic link. CVE-2024-28185 and CVE-2024-28189
// (Judge0), CVE-2026-1386 and a row of container escapes are this one mistake.
//
// Three directions are covered: files that come in ([OpenInput],
// [OpenMountSource], [CloneMount]), files that go out ([Dir]), and trees made
// by hostile programs that must go away ([RemoveTree]).
//
// Needs Linux 5.12 for idmapped mounts, 5.6 (openat2) for the rest, and /proc.
package hostfs

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OpenInput opens a regular file that will be copied into a box. The last
// component may not be a symbolic link; links before it are the caller's own.
// A folder, pipe, socket or device is an error at once: nothing is opened for
// reading before its kind is known, so nothing can block or be triggered.
func OpenInput(path string) (*os.File, fs.FileInfo, error) {
	handle, info, err := openHandle(path, unix.O_NOFOLLOW)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open input: %w", err)
	}
	defer handle.Close()
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("cannot open input %s: it is %s, not a regular file", path, kindOf(info.Mode()))
	}
	// This link leads to the very inode, not to a name.
	fd, err := retry(func() (int, error) {
		// O_NONBLOCK: another process's lease must not hold us up.
		return unix.Open(procPath(handle), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open input %s: %w", path, err)
	}
	unix.SetNonblock(fd, false)
	return os.NewFile(uintptr(fd), path), info, nil
}

// openHandle opens a path with O_PATH: it is then pinned, but neither read nor
// written nor, if it is a device, opened.
func openHandle(path string, flags int) (*os.File, fs.FileInfo, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	})
	return handleOf(fd, path, err)
}

// openStraight is openHandle for a path in which no component may be a symbolic
// link.
func openStraight(path string) (*os.File, fs.FileInfo, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := retry(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, &how) })
	return handleOf(fd, path, err)
}

func handleOf(fd int, path string, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// procPath names an open file in a way that no rename can redirect.
func procPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a regular file"
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	default:
		return "of an unknown kind"
	}
}

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
