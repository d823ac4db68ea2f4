package posture

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// File is one open descriptor.
type File struct {
	FD int
	// Kind is what it refers to, with numbers that differ from run to run
	// left out: a path, "path (deleted)", "pipe", "unix socket", "socket" for
	// any other family, "memfd:NAME", or the kernel's name as in
	// "anon_inode:[eventfd]".
	Kind string
	// Access is "r", "w", "rw" or, for a descriptor that is only a place in
	// the file system (O_PATH), "path".
	Access string
}

func (f File) String() string { return f.Kind + " " + f.Access }

// oPath is O_PATH of open(2), which has one value on all architectures.
const oPath = 0o10000000

func files(pid int) ([]File, error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	entries, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return nil, failed("list descriptors", err)
	}
	var sockets string
	var all []File
	for _, e := range entries {
		target, err := os.Readlink(dir + "/fd/" + e.Name())
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read descriptor: %w", err)
		}
		info, err := os.ReadFile(dir + "/fdinfo/" + e.Name())
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read descriptor: %w", err)
		}
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, fmt.Errorf("cannot read descriptor: %w", err)
		}
		if sockets == "" && strings.HasPrefix(target, "socket:") {
			sockets = unixSockets(dir)
		}
		k := kind(target, sockets)
		if target == "/" {
			// The root of a mount that is attached nowhere looks like ours.
			k += fileSystem(dir + "/fd/" + e.Name())
		}
		all = append(all, File{FD: n, Kind: k, Access: access(string(info))})
	}
	slices.SortFunc(all, func(a, b File) int { return cmp.Compare(a.FD, b.FD) })
	return all, nil
}

// kind normalizes the target of a link in /proc/PID/fd.
func kind(target, sockets string) string {
	name, rest, _ := strings.Cut(target, ":")
	switch {
	case name == "pipe":
		return "pipe"
	case name == "socket":
		if inode := strings.Trim(rest, "[]"); strings.Contains(sockets, " "+inode+"\n") || strings.Contains(sockets, " "+inode+" ") {
			return "unix socket"
		}
		return "socket"
	case name == "/memfd":
		return "memfd:" + strings.TrimSuffix(rest, " (deleted)")
	}
	// A file without a name is shown as a number sign and its inode.
	if base, ok := strings.CutSuffix(target, " (deleted)"); ok {
		if i := strings.LastIndex(base, "/#"); i >= 0 {
			return base[:i] + "/# (deleted)"
		}
	}
	return target
}

// fileSystem marks what lies on a proc file system.
func fileSystem(path string) string {
	const procMagic = 0x9fa0 // PROC_SUPER_MAGIC; see statfs(2)
	var st syscall.Statfs_t
	if syscall.Statfs(path, &st) == nil && st.Type == procMagic {
		return " of a proc mount"
	}
	return ""
}

// unixSockets is the table of unix sockets that the process's and the reader's
// network namespaces know; a socket stays in the one where it was made.
func unixSockets(dir string) string {
	theirs, _ := os.ReadFile(dir + "/net/unix")
	ours, _ := os.ReadFile("/proc/self/net/unix")
	return string(theirs) + string(ours)
}

// access reads the flags of proc_pid_fdinfo(5).
func access(info string) string {
	for line := range strings.Lines(info) {
		v, ok := strings.CutPrefix(line, "flags:")
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(v), 8, 64)
		switch {
		case err != nil:
			return "?"
		case flags&oPath != 0:
			return "path"
		}
		return [...]string{"r", "w", "rw", "?"}[flags&syscall.O_ACCMODE]
	}
	return "?"
}
