package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/sunaba-dev/sunaba/internal/host/procs"
)

// programMark is what programs of a box that lasts are taken for, more than they
// are, by the kernel when it looks for the process to end, in bytes. Cell and
// agent are taken for what they are: else the agent would be the largest process
// of a box in which many small ones have used up all. It is some three times the
// agent's size, and not more: a program that nobody has looked at yet has no mark,
// and one that is larger than an old program by more than this is ended before it
// all the same.
const programMark = 32 << 20

// scoreOf is programMark as the kernel counts, in thousandths of the memory that
// the group may have (oom_score_adj of proc_pid_oom_score_adj(5)): 1 to 1000, and
// half of all where the group has no limit.
func scoreOf(limit int64) int64 {
	if limit <= 0 {
		return 500
	}
	return max(1, min(1000, 1000*programMark/limit))
}

// victims marks programs as those to be ended first. A program passes its mark
// on to what it starts, so each look finds few that have none.
type victims struct {
	score  int64
	group  func() ([]int, error) // processes on the host
	spare  map[int]bool          // box numbers of cell and agent
	marked map[int]bool
}

func (v *victims) look(id string) {
	all, err := v.group()
	if err != nil {
		return // the box has gone
	}
	there := make(map[int]bool, len(all))
	for _, pid := range all {
		there[pid] = true
		if !v.marked[pid] {
			v.marked[pid] = v.mark(pid, id) == nil
		}
	}
	for pid := range v.marked {
		if !there[pid] {
			delete(v.marked, pid)
		}
	}
}

// mark marks one process, if it is a program of the box's: its number may be
// somebody else's by now, so all is read and written through one folder of /proc,
// which stays that process's.
func (v *victims) mark(pid int, id string) error {
	dir, err := os.OpenRoot("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return err
	}
	defer dir.Close()
	groups, err := readFrom(dir, "cgroup")
	if err != nil {
		return err
	}
	if !bytes.Contains(groups, []byte("/"+id+"\n")) {
		return errors.New("not of the box")
	}
	status, err := readFrom(dir, "status")
	if err != nil {
		return err
	}
	inner, err := procs.Innermost(string(status))
	if err != nil || v.spare[inner] {
		return err
	}
	// A child of the agent's that has not become its program yet has the agent's
	// memory: who ends it, ends the agent (vfork(2), __oom_kill_process in Linux
	// mm/oom_kill.c).
	if exe, err := dir.Readlink("exe"); err == nil && strings.HasPrefix(exe, "/memfd:sunaba") {
		return errors.New("not a program yet")
	}
	f, err := dir.OpenFile("oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(strconv.FormatInt(v.score, 10))
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

func readFrom(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}
