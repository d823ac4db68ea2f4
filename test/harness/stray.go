package harness

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Stray lists what there is on this host of boxes that were made below u's state
// folder and are none of live, and of a daemon that is not pid: what a crash must
// not leave. Loops is how many stores of live boxes are behind loop devices; no live
// box has a volume.
// What was killed may take a moment to be gone, and on a busy host a long one.
func Stray(t testing.TB, u User, pid int, live []string, loops int) []string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all := stray(t, u, pid, live, loops)
		if len(all) == 0 || time.Now().After(deadline) {
			return all
		}
	}
}

func stray(t testing.TB, u User, pid int, live []string, loops int) []string {
	t.Helper()
	state := State(t, u)
	dead := slices.DeleteFunc(made.all(), func(id string) bool { return slices.Contains(live, id) })
	var all []string
	for _, id := range dead {
		all = append(all, groups(id)...)
	}
	all = append(all, inhabitants(dead)...)
	all = append(all, ownProcesses(t, u, pid, dead, live)...)
	for _, table := range []string{"/proc/self/mountinfo", "/proc/net/unix"} {
		b, _ := os.ReadFile(table)
		for line := range strings.Lines(string(b)) {
			if slices.ContainsFunc(dead, func(s string) bool { return strings.Contains(line, s) }) {
				all = append(all, table+": "+strings.TrimSpace(line))
			}
		}
	}
	for sub, mine := range map[string][]string{"run": nil, "store": nil, "boxes": live} {
		entries, _ := os.ReadDir(filepath.Join(state, sub))
		for _, e := range entries {
			if !slices.Contains(mine, e.Name()) {
				all = append(all, "file "+filepath.Join(state, sub, e.Name()))
			}
		}
		for _, id := range mine {
			if _, err := os.Stat(filepath.Join(state, sub, id)); err != nil {
				all = append(all, fmt.Sprintf("no folder of a box that lives: %v", err))
			}
		}
	}
	n := 0
	devices, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range devices {
		switch b, _ := os.ReadFile(l); {
		case strings.Contains(string(b), state+"/store/"):
			n++
		case strings.Contains(string(b), state+"/volumes/"):
			all = append(all, "loop device "+l+" holds a volume")
		}
	}
	if n != loops {
		all = append(all, fmt.Sprintf("%d loop devices hold stores, %d boxes have one", n, loops))
	}
	return all
}

// ownProcesses finds processes of the tested binary that are neither the daemon, nor
// its gateway, nor in a box that lives, and those of a dead box's host user.
func ownProcesses(t testing.TB, u User, pid int, dead, live []string) []string {
	want, err := os.Stat(Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	users := map[uint32]string{}
	for _, id := range dead {
		users[HostUser(id)] = id
	}
	for _, id := range live {
		delete(users, HostUser(id))
	}
	var all []string
	mine := append(Gateways(t, pid), 0)[0] // one, if boxes need it
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" || e.Name() == fmt.Sprint(pid) || e.Name() == fmt.Sprint(mine) || inherited(e.Name()) {
			continue
		}
		dir, err := os.Stat("/proc/" + e.Name())
		if err != nil {
			continue
		}
		if st, ok := dir.Sys().(*syscall.Stat_t); ok && users[st.Uid] != "" {
			all = append(all, "process "+e.Name()+" of the user of box "+users[st.Uid])
		}
		st, err := os.Stat("/proc/" + e.Name() + "/exe")
		if err != nil || !sameFile(st, want) || u != Root {
			continue
		}
		cgroup, _ := os.ReadFile("/proc/" + e.Name() + "/cgroup")
		if !slices.ContainsFunc(live, func(id string) bool { return strings.Contains(string(cgroup), id) }) {
			cmdline, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			all = append(all, fmt.Sprintf("process %s: %.80q", e.Name(), strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
	return all
}

// HostUser is who a box of root's is on the host.
func HostUser(id string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(id))
	return 0x70000000 + h.Sum32()&0xffffff
}
