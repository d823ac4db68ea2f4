// Package posture reads what the kernel says of live processes and compares it
// with what the walls of a box promise.
//
// A wall is believed when /proc says that it stands, not when the call that
// built it returned. The same reader serves the doctor, which looks at a real
// box on this host, and the tests, which compare every field with literals.
//
// Everything is a sample: a process may start threads, open files or end while
// it is read. What has gone meanwhile is left out; a process that has ended is
// an error that matches [os.ErrNotExist] or [syscall.ESRCH].
//
// Sources: the pages proc_pid_*(5), namespaces(7), capabilities(7).
package posture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrGone means that a process ended before it was read.
var ErrGone = errors.New("the process has ended")

// Process is one process as the kernel shows it.
type Process struct {
	PID, Parent int
	Args        []string
	// Hidden is true if the process is closed to others (PR_SET_DUMPABLE,
	// prctl(2)) and the reader is not root: Environment and Files are then not
	// known, not empty.
	Hidden bool
	// Environment is what the kernel shows as the process's environment,
	// without NUL bytes: a process that overwrote its own has none.
	Environment string
	Threads     []Thread
	Files       []File            // by descriptor
	Namespaces  map[string]string // "user", "mnt", ... -> identity; "time" where the kernel has it
	// ChildTime is the time namespace that children will be in; see
	// time_namespaces(7). It is empty where the kernel has none.
	ChildTime   string
	Root        string // where the root directory lies, as the process's mounts name it
	Mounts      []Mount
	Groups      []string // lines of /proc/PID/cgroup
	UIDMap      string   // "inside outside count", one mapping a line
	OOMScoreAdj int
}

// Read reads a process and all its threads. The caller must be allowed to
// inspect it, ptrace(2): root, or the same user, to whom part of it may be
// [Process.Hidden].
func Read(pid int) (*Process, error) {
	p, err := read(pid)
	if err == nil {
		nameSockets([]int{os.Getpid(), pid}, p)
	}
	return p, err
}

// Tree reads a process and all that are below it, parents before children. Of
// those below, the ones that ended meanwhile are left out.
func Tree(pid int) ([]*Process, error) {
	pids, err := below(pid)
	if err != nil {
		return nil, err
	}
	var all []*Process
	for i, pid := range pids {
		p, err := read(pid)
		if i > 0 && errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	nameSockets(append([]int{os.Getpid()}, pids...), all...)
	return all, nil
}

func read(pid int) (*Process, error) {
	p := &Process{PID: pid, Namespaces: map[string]string{}}
	dir := fmt.Sprintf("/proc/%d", pid)
	text := func(name string) []byte {
		b, _ := os.ReadFile(dir + "/" + name)
		return b
	}
	env, err := os.ReadFile(dir + "/environ")
	if errors.Is(err, os.ErrPermission) {
		p.Hidden, err = true, nil
	}
	if err != nil {
		return nil, failed("read process", err)
	}
	p.Environment = string(bytes.ReplaceAll(env, []byte{0}, nil))
	p.Args = strings.Split(strings.TrimSuffix(string(text("cmdline")), "\x00"), "\x00")
	p.Groups = lines(text("cgroup"))
	p.UIDMap = strings.Join(strings.Fields(string(text("uid_map"))), " ")
	score, err := os.ReadFile(dir + "/oom_score_adj")
	if err != nil {
		return nil, failed("read process", err)
	}
	if p.OOMScoreAdj, err = strconv.Atoi(strings.TrimSpace(string(score))); err != nil {
		return nil, failed("read process", err)
	}
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if p.Namespaces[name], err = os.Readlink(dir + "/ns/" + name); err != nil {
			return nil, failed("read process", err)
		}
	}
	if id, err := os.Readlink(dir + "/ns/time"); err == nil { // Linux 5.6
		p.Namespaces["time"] = id
		p.ChildTime, _ = os.Readlink(dir + "/ns/time_for_children")
	}
	if p.Root, err = os.Readlink(dir + "/root"); err != nil {
		return nil, failed("read process", err)
	}
	p.Mounts = parseMounts(string(text("mountinfo")))
	if !p.Hidden {
		if p.Files, err = files(pid); err != nil {
			return nil, err
		}
	}
	if p.Threads, err = threads(pid); err != nil {
		return nil, err
	}
	p.Parent = parentOf(pid)
	return p, nil
}

// below returns pid and every process below it, parents before children.
func below(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	children := map[int][]int{}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			parent := parentOf(n)
			children[parent] = append(children[parent], n)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}

// parentOf returns 0 if the process has gone.
func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The name, in parentheses, may hold anything; see proc_pid_stat(5).
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(string(f[1]))
	return n
}

// Mount is one line of mountinfo.
type Mount struct {
	Root   string // which folder of the file system is shown
	Point  string
	Type   string
	Source string
	Opts   string // of this mount
}

func parseMounts(text string) []Mount {
	var all []Mount
	for line := range strings.Lines(text) {
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) >= 6 && len(r) >= 2 {
			all = append(all, Mount{Root: l[3], Point: l[4], Opts: l[5], Type: r[0], Source: r[1]})
		}
	}
	return all
}

// List returns the names below the process's root directory, folders before
// what is in them, at most max. A folder that may not be read counts as empty.
func (p *Process) List(max int) []string {
	root := fmt.Sprintf("/proc/%d/root", p.PID)
	var all []string
	_ = filepath.WalkDir(root+"/", func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if rel := strings.TrimPrefix(path, root+"/"); rel != "" {
			all = append(all, rel)
		}
		if len(all) >= max {
			return filepath.SkipAll
		}
		return nil
	})
	return all
}

func lines(b []byte) []string {
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// gone reports whether an error means that what was read has ended.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// failed words an error of reading /proc.
func failed(verb string, err error) error {
	if gone(err) {
		return fmt.Errorf("cannot %s: %w (%w)", verb, ErrGone, err)
	}
	return fmt.Errorf("cannot %s: %w", verb, err)
}
