package procs

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// Trace lists the processes in an open /proc, the first one too, each with its
// start and how often programs that it started, and that have ended, had to be
// given memory (cminflt and cmajflt of proc_pid_stat(5)). So whatever ran leaves a
// trace in who waited for it, and there is no program that needs no memory.
func Trace(proc *os.File) (string, error) {
	base := fmt.Sprintf("/proc/self/fd/%d", proc.Fd())
	dir, err := os.Open(base)
	if err != nil {
		return "", fmt.Errorf("cannot list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "", fmt.Errorf("cannot list processes: %w", err)
	}
	slices.Sort(names)
	var out []byte
	for _, n := range names {
		if _, err := strconv.Atoi(n); err != nil {
			continue
		}
		stat, err := os.ReadFile(base + "/" + n + "/stat")
		if err != nil {
			continue // it has ended; who waits for it will say so
		}
		// The name, in parentheses, may hold anything.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 20 {
			return "", fmt.Errorf("cannot look at process %s: its account is cut off", n)
		}
		out = fmt.Appendf(out, "%s %s %s %s\n", n, f[19], f[8], f[10]) // fields 22, 11 and 13
	}
	return string(out), nil
}
