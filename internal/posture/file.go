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
	// "anon_inode:[eventfd]". One that refers to a process that is no more is
	// "anon_inode:[pidfd] of nobody".
	Kind string
	// Access is "r", "w", "rw" or, for a descriptor that is only a place in
	// the file system (O_PATH), "path".
	Access string
}

func (f File) String() string { return f.Kind + " " + f.Access }

// oPath is O_PATH of open(2), which has one value on all architectures.
const oPath = 0o10000000

// files lists the descriptors of a process; of a socket the number stays in its
// kind, for nameSockets.
func files(pid int) ([]File, error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	entries, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return nil, failed("list descriptors", err)
	}
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
		k := kind(target)
		if target == "/" {
			// The root of a mount that is attached nowhere looks like ours.
			k += fileSystem(dir + "/fd/" + e.Name())
		}
		if k == "anon_inode:[pidfd]" && slices.Contains(strings.Split(string(info), "\n"), "Pid:\t-1") {
			k += " of nobody" // its process has ended and was reaped
		}
		all = append(all, File{FD: n, Kind: k, Access: access(string(info))})
	}
	slices.SortFunc(all, func(a, b File) int { return cmp.Compare(a.FD, b.FD) })
	return all, nil
}

// kind normalizes the target of a link in /proc/PID/fd.
func kind(target string) string {
	name, rest, _ := strings.Cut(target, ":")
	switch {
	case name == "pipe":
		return "pipe"
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

// nameSockets tells sockets of the unix family, as the network namespaces of the
// given processes know them, from others. It looks after the descriptors were
// read, so that a socket that is still there is known.
func nameSockets(pids []int, all ...*Process) {
	// The kernel gives the table a page at a time, and goes on by counting: what is
	// closed in between, by anybody, lets it leave one out.
	for range 4 {
		if nameKnown(unixSockets(pids), all) == 0 {
			break
		}
	}
	for _, p := range all {
		for i, f := range p.Files {
			if strings.HasPrefix(f.Kind, "socket:[") {
				p.Files[i].Kind = "socket"
			}
		}
	}
}

// nameKnown names the sockets that a table of the unix family has and returns how
// many are left.
func nameKnown(table string, all []*Process) (left int) {
	for _, p := range all {
		for i, f := range p.Files {
			inode, ok := strings.CutPrefix(f.Kind, "socket:[")
			if !ok {
				continue
			}
			inode = strings.TrimSuffix(inode, "]")
			if strings.Contains(table, " "+inode+"\n") || strings.Contains(table, " "+inode+" ") {
				p.Files[i].Kind = "unix socket"
			} else {
				left++
			}
		}
	}
	return left
}

// unixSockets is what the network namespaces of some processes know of unix
// sockets: a socket stays in the namespace where it was made, whoever holds it.
func unixSockets(pids []int) string {
	var all strings.Builder
	seen := map[string]bool{}
	for _, pid := range pids {
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil || seen[ns] {
			continue
		}
		seen[ns] = true
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
		all.Write(table)
	}
	return all.String()
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
