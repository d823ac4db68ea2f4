package daemon

import (
	"encoding/binary"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// watchMemory ends a program each time that the box's walls say, by SIGUSR1,
// that its memory is out: the one with the most of it, which is what a kernel
// would do, but for the agent itself. What is needed for that is made now.
func (a *agent) watchMemory() {
	said := make(chan os.Signal, 1)
	signal.Notify(said, syscall.SIGUSR1)
	s := &scan{buf: make([]byte, 32<<10), line: make([]byte, 1024), self: os.Getpid()}
	go func() {
		for range said {
			s.relieve(a.table)
		}
	}()
}

// scan reads /proc with what it has.
type scan struct {
	buf, line []byte
	chain     [64]int
	self      int
}

// relieve kills the largest program and notes it with the one that was started
// here and that it descends from.
func (s *scan) relieve(t *table) {
	victim, most := 0, uint64(0)
	mine, held := s.memory(s.self)
	s.each(func(pid int) {
		if pid == s.self || pid == 1 { // the first process holds the walls
			return
		}
		size, pages := s.memory(pid)
		// A child that has not become its program yet has our memory: vfork(2). A program
		// can make itself of our size, but not hold much more for it.
		if size == mine && pages <= 2*held {
			return
		}
		if pages > most && s.ours(pid, t) {
			victim, most = pid, pages
		}
	})
	if victim == 0 {
		return
	}
	line := s.lineage(victim)
	if syscall.Kill(victim, syscall.SIGKILL) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pid := range line {
		if p := t.kept(pid); p != nil && p.end == nil {
			p.short = true
			return
		}
	}
}

// ours reports whether a process is of this box: all are where we are the first
// process, else those that were started here and what descends from them.
func (s *scan) ours(pid int, t *table) bool {
	if s.self == 1 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, above := range s.lineage(pid) {
		if t.live[above] != nil || t.kept(above) != nil {
			return true
		}
	}
	return false
}

// each calls fn with the number of every process.
func (s *scan) each(fn func(pid int)) {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for {
		n, err := retry(func() (int, error) { return unix.ReadDirent(fd, s.buf) })
		if n <= 0 || err != nil {
			return
		}
		for rest := s.buf[:n]; len(rest) > 19; { // struct linux_dirent64, getdents(2)
			size := int(binary.NativeEndian.Uint16(rest[16:]))
			if size < 19 || size > len(rest) {
				return
			}
			if pid := number(rest[19:size]); pid > 0 {
				fn(pid)
			}
			rest = rest[size:]
		}
	}
}

// number reads a name of digits that a NUL ends; 0 is any other.
func number(name []byte) int {
	n := 0
	for i, c := range name {
		if c == 0 && i > 0 {
			return n
		}
		if c < '0' || c > '9' || n > 1<<30 {
			return 0
		}
		n = 10*n + int(c-'0')
	}
	return 0
}

// read returns the beginning of a small file of a process.
func (s *scan) read(pid int, name string) []byte {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, _ := retry(func() (int, error) { return unix.Read(fd, s.line) })
	return s.line[:max(n, 0)]
}

// resident is how much of a process's memory is there, in pages.
func (s *scan) resident(pid int) uint64 {
	_, n := s.memory(pid)
	return n
}

// memory is how much address space a process has and how much of it is resident,
// in pages: /proc/PID/statm.
func (s *scan) memory(pid int) (size, resident uint64) {
	line := s.read(pid, "statm")
	return fieldAt(line, 0), fieldAt(line, 1)
}

// lineage is a process, those above it as far as they are known, and last the
// session that it is in: each program that is started here leads one.
func (s *scan) lineage(pid int) []int {
	chain, session := s.chain[:0], 0
	for len(chain) < cap(chain)-1 && pid > 1 && pid != s.self {
		chain = append(chain, pid)
		st := statFields(s.read(pid, "stat"))
		if session == 0 {
			session = int(fieldAt(st, 3))
		}
		pid = int(fieldAt(st, 1))
	}
	return append(chain, session)
}

// statFields is what follows a process's name in proc_pid_stat(5): the name may
// hold anything, a parenthesis ends it. The first is the state.
func statFields(line []byte) []byte {
	for i := len(line) - 1; i >= 0; i-- {
		if line[i] == ')' && i+2 <= len(line) {
			return line[min(i+2, len(line)):]
		}
	}
	return nil
}

// fieldAt is the n-th number in a line of words, from 0 on; 0 if there is none.
func fieldAt(line []byte, n int) uint64 {
	v := uint64(0)
	for _, c := range line {
		switch {
		case c == ' ' || c == '\n':
			if n == 0 {
				return v
			}
			n--
		case n == 0 && c >= '0' && c <= '9':
			v = 10*v + uint64(c-'0')
		}
	}
	if n == 0 {
		return v
	}
	return 0
}

// endedBy says who ended a process: memory, too, if a program below it was
// killed for want of it and it did not go well after that.
func (p *process) endedBy() pb.End_By {
	if p.by == pb.End_BY_UNSPECIFIED && p.short && p.status != 0 {
		return pb.End_BY_MEMORY
	}
	return p.by
}
