package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Gateways lists the gateways that are a daemon's children, by their process ids.
func Gateways(t testing.TB, daemon int) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		line, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(line), "sunaba-gate\x00") {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		if f := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:])); len(f) > 1 && f[1] == strconv.Itoa(daemon) && f[0] != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Alive reports whether there is a process of this number that has not ended. One that
// has, and was left to init, which collects some only after seconds, is not alive.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	f := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:])) // behind the name: proc_pid_stat(5)
	return len(f) > 0 && f[0] != "Z" && f[0] != "X"
}

// Resident is what a process holds, in KiB; 0 if it has gone.
func Resident(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(v), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	return 0 // it is dead, and its parent has not asked yet
}

// Owner is the user whose file it is.
func Owner(st os.FileInfo) uint32 { return st.Sys().(*syscall.Stat_t).Uid }
