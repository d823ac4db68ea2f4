// Package procs reads what a box's processes hold, from the box's own /proc.
//
// What a process holds is told in many places, and none of them is exact at
// once: a page may be mapped by many processes, and memory may belong to a file
// that nobody has mapped. [MemoryOver] therefore starts from sums that can only
// be too large, and asks for what costs the kernel time only if these are over
// the limit. See proc_pid_status(5), proc_pid_smaps(5) and, for the number of
// descriptors as the size of a folder, Linux 6.2's proc.
package procs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Process is one process of a box. It may have ended: then it holds nothing.
type Process struct {
	dir    string
	number int // in the box
}

// List returns the processes in an open /proc, its first one aside.
func List(proc *os.File) ([]Process, error) {
	// Opened anew: the offset of an open folder is shared.
	base := fmt.Sprintf("/proc/self/fd/%d", proc.Fd())
	dir, err := os.Open(base)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	var all []Process
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil && pid != 1 {
			all = append(all, Process{base + "/" + n, pid})
		}
	}
	return all, nil
}

// OpenFiles is the number of open descriptors.
func (p Process) OpenFiles() int64 {
	st, err := os.Stat(p.dir + "/fd")
	if err != nil {
		return 0
	}
	if st.Size() > 0 {
		return st.Size()
	}
	return int64(len(p.descriptors())) // before Linux 6.2, or there are none
}

func (p Process) descriptors() []string {
	dir, err := os.Open(p.dir + "/fd")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	return names
}

// Tasks is the number of threads; a process that has ended and that nobody has
// waited for still counts as one.
func (p Process) Tasks() int64 {
	st, err := os.Stat(p.dir + "/task")
	if err != nil {
		return 0
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return max(int64(sys.Nlink)-2, 1) // a folder for each
}

// Memory is a sum over processes, in bytes.
type memory struct{ anon, shared int64 }

// resident is what a process has mapped: its private memory, and what it shares,
// counted again for every process that does.
func (p Process) resident() memory {
	return p.read("status", "RssAnon:", "RssShmem:")
}

// share is the process's share of it: of a page that n processes have mapped,
// one n-th. A kernel that does not tell (before 5.3) gives all of it.
func (p Process) share() memory {
	m := p.read("smaps_rollup", "Pss_Anon:", "Pss_Shmem:")
	if m == (memory{}) {
		return p.resident()
	}
	return m
}

// read reads two lines of a file of lines "Key: number kB".
func (p Process) read(file, anon, shared string) memory {
	b, err := os.ReadFile(p.dir + "/" + file)
	if err != nil {
		return memory{}
	}
	var m memory
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != anon && f[0] != shared {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		if f[0] == anon {
			m.anon += n << 10
		} else {
			m.shared += n << 10
		}
	}
	return m
}

// memfds adds to seen the memory of files without a file system that the process
// has open (memfd_create(2)), by inode: nobody needs to have them mapped.
func (p Process) memfds(seen map[uint64]int64) {
	for _, fd := range p.descriptors() {
		path := p.dir + "/fd/" + fd
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, "/memfd:") {
			continue
		}
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err == nil {
			seen[st.Ino] = st.Blocks * 512
		}
	}
}

// MemoryOver reports whether processes hold more than limit bytes of memory,
// including the files bytes that the box has in file systems in memory and in
// segments that only its kernel can count. Memory that is shared and in none of
// these counts where it is more than these. What the kernel keeps for the
// processes, such as page tables and what waits in sockets and pipes, is not
// seen from here, nor are files that are not mapped of a process that closed its
// descriptors to others of its user (PR_SET_DUMPABLE), unless the caller is root.
// Of those that work in one memory only one counts: first is the number, on the
// host, of the box's first process, whose own memory is none of the box's.
func MemoryOver(first int, all []Process, files, limit int64) bool {
	memfds := make(map[uint64]int64)
	var most memory
	for _, p := range all {
		m := p.resident()
		most.anon += m.anon
		most.shared += m.shared
		p.memfds(memfds)
	}
	if most.anon+max(files+sum(memfds), most.shared) <= limit {
		return false
	}
	return over(func() int64 { return shares(first, all, files) }, limit)
}

func sum(sizes map[uint64]int64) (all int64) {
	for _, n := range sizes {
		all += n
	}
	return all
}

// over reports whether a sum is more than limit, and is so when it is read again. One
// process is read after the other: when those that have the same pages end meanwhile,
// each who is left is read with a larger share of them, and all that was read is more
// than there ever was.
func over(sum func() int64, limit int64) bool {
	for range 2 {
		if sum() <= limit {
			return false
		}
	}
	return true
}

// shares is what processes hold, with the files. One that borrows its parent's
// memory has descriptors of its own all the same; those of a child of the first
// process that is no program yet are that process's.
func shares(first int, all []Process, files int64) int64 {
	borrowed := borrowers(first)
	memfds := make(map[uint64]int64)
	var real memory
	for _, p := range all {
		parent, borrows := borrowed[p.number]
		if !borrows {
			m := p.share()
			real.anon += m.anon
			real.shared += m.shared
		}
		if !borrows || parent != 1 {
			p.memfds(memfds)
		}
	}
	return real.anon + max(files+sum(memfds), real.shared)
}
