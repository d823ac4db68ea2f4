package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NothingLeft registers a check for the end of the test: no process of the
// tested binary, control group, mount, loop device, network namespace, socket,
// run folder or store file may be there that was not there before.
func NothingLeft(t testing.TB) {
	t.Helper()
	before := traces(t)
	t.Cleanup(func() {
		for _, s := range leftover(t, before) {
			t.Errorf("left behind: %s", s)
		}
	})
}

// leftover returns what is there that was not there before. What was killed may
// take the kernel a moment to take down, and a janitor a moment to clear; on a busy
// host either is long.
func leftover(t testing.TB, before []string) []string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		extra := slices.DeleteFunc(traces(t), func(s string) bool { return slices.Contains(before, s) })
		if len(extra) == 0 || time.Now().After(deadline) {
			return extra
		}
	}
}

// traces lists everything on this host that belongs to the tested binary and to
// the boxes that it made in this test process.
func traces(t testing.TB) []string {
	t.Helper()
	all := processes(t)
	ids := made.all()
	for _, id := range ids {
		all = append(all, groups(id)...)
	}
	ours := slices.Clone(ids)
	states.Range(func(_, d any) bool {
		ours = append(ours, d.(string))
		for _, sub := range []string{"run", "boxes", "store"} {
			entries, _ := os.ReadDir(filepath.Join(d.(string), sub))
			for _, e := range entries {
				all = append(all, "file "+filepath.Join(d.(string), sub, e.Name()))
			}
		}
		return true
	})
	all = append(all, inhabitants(ours)...)
	// gVisor names its control socket after the box.
	for _, table := range []string{"/proc/self/mountinfo", "/proc/net/unix"} {
		b, _ := os.ReadFile(table)
		for line := range strings.Lines(string(b)) {
			if slices.ContainsFunc(ours, func(s string) bool { return strings.Contains(line, s) }) {
				all = append(all, table+": "+strings.TrimSpace(line))
			}
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		b, _ := os.ReadFile(l)
		if slices.ContainsFunc(ours, func(s string) bool { return strings.Contains(string(b), s) }) {
			all = append(all, "loop device "+l)
		}
	}
	return all
}

// processes finds every process that runs the tested binary, under whatever
// name, and everything below one.
func processes(t testing.TB) []string {
	t.Helper()
	want, err := os.Stat(Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" {
			continue
		}
		st, err := os.Stat("/proc/" + e.Name() + "/exe")
		if err != nil || !sameFile(st, want) {
			continue
		}
		cmdline, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		all = append(all, fmt.Sprintf("process %s: %.80q", e.Name(), strings.ReplaceAll(string(cmdline), "\x00", " ")))
	}
	return all
}

// inherited reports whether a process is dead and was left to init: whoever made
// it has ended. When init collects it is the host's affair, and some take seconds.
func inherited(pid string) bool {
	b, _ := os.ReadFile("/proc/" + pid + "/stat")
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // behind the name: proc_pid_stat(5)
	return len(f) > 1 && string(f[0]) == "Z" && string(f[1]) == "1"
}

// inhabitants finds every process that is in a group of ours, has a mount of
// ours, or was given one of our names: a box of the process tier runs other
// programs than the tested one, and so do janitors.
func inhabitants(ours []string) []string {
	var all []string
	own := fmt.Sprint(os.Getpid())
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" || e.Name() == own || inherited(e.Name()) {
			continue
		}
		cgroup, _ := os.ReadFile("/proc/" + e.Name() + "/cgroup")
		mounts, _ := os.ReadFile("/proc/" + e.Name() + "/mountinfo")
		cmdline, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		text := string(cgroup) + string(mounts) + string(cmdline)
		if slices.ContainsFunc(ours, func(s string) bool { return strings.Contains(text, s) }) {
			all = append(all, fmt.Sprintf("inhabitant %s: %.80q", e.Name(), strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
	return all
}

func sameFile(a, b os.FileInfo) bool {
	x, ok1 := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && x.Dev == y.Dev && x.Ino == y.Ino
}

// groups lists the control groups of a box, in every hierarchy.
func groups(id string) []string {
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/sunaba/", "/sys/fs/cgroup/sunaba/"} {
		m, _ := filepath.Glob(pattern + id)
		for _, p := range m {
			all = append(all, "group "+p)
		}
	}
	return all
}
