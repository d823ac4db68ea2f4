package procs

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// borrowers are the processes of a box, by their numbers there, that work in the
// memory of the process that started them: between vfork(2) and execve(2), and with
// CLONE_VM for as long as they like. What they hold is their parent's, and is counted there.
// The value is the parent's number. first is the box's first process, as we see it.
//
// They have to be found among our own processes, since kcmp(2) takes our numbers
// and a box's /proc tells its own. What cannot be read is no borrower: it counts
// for itself, and the sum is too large.
func borrowers(first int) map[int]int {
	found := make(map[int]int)
	seen := map[int]bool{first: true}
	type process struct{ pid, number int }
	for todo := []process{{first, 1}}; len(todo) > 0; todo = todo[1:] {
		p := todo[0]
		for _, child := range children(p.pid) {
			if seen[child] {
				continue // it was handed on while this was read
			}
			seen[child] = true
			n, err := numberOf(child)
			if err != nil {
				continue
			}
			if sameMemory(p.pid, child) {
				found[n] = p.number
			}
			todo = append(todo, process{child, n})
		}
	}
	return found
}

// sameMemory reports whether two processes have one address space (KCMP_VM of kcmp(2)).
func sameMemory(a, b int) bool {
	for {
		order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
		if !errors.Is(errno, unix.EINTR) {
			return errno == 0 && order == 0
		}
	}
}

// kcmpVM is KCMP_VM of linux/kcmp.h.
const kcmpVM = 1

// children are the processes that a process has started or was handed
// (proc_tid_children(5)).
func children(pid int) (all []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, task := range tasks {
		b, err := os.ReadFile(dir + "/" + task.Name() + "/children")
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// numberOf is a process's number in its box.
func numberOf(pid int) (int, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	return Innermost(string(b))
}

// Innermost is a process's number in the innermost namespace that it is in, by its
// status: NSpid of proc_pid_status(5).
func Innermost(status string) (int, error) {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if f := strings.Fields(v); len(f) > 0 {
				return strconv.Atoi(f[len(f)-1])
			}
		}
	}
	return 0, errors.New("cannot tell a process's number in the box")
}
