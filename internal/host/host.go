// Package host is the only room that speaks to the kernel directly: namespaces,
// credentials, mounts, sockets that carry descriptors, process trees. Each of
// its subfolders is one part of the walls: limits by control group (cgroup),
// files by descriptor (hostfs), file systems that lie in files (blockfs), a root
// of its own (jail), what a process gives up before it becomes a program
// (confine), and the list of system calls that it keeps (seccomp).
//
// Functions here do one thing, say exactly what the kernel said, and never
// choose a policy. What a caller asked for and the kernel did not do is an
// error, not a log line.
package host

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SelfExe is the running program, whatever name or folder it was started from.
// It stays valid when the file is replaced or unlinked, and it can be executed
// by a user who cannot reach the folder that holds it.
const SelfExe = "/proc/self/exe"

// IsRoot reports whether this process has host uid 0 in its user namespace.
func IsRoot() bool { return os.Geteuid() == 0 }

// FDPath names an open descriptor of the calling process as a path. Opening it
// reaches the same inode whatever has happened to its name since.
func FDPath(fd uintptr) string { return "/proc/self/fd/" + strconv.Itoa(int(fd)) }

// Dup duplicates an open file; both descriptors share one open file
// description and are closed on exec.
func Dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("cannot duplicate descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
