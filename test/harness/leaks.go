package harness

import (
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
		var extra []string
		// What was killed may take the kernel a moment to take down.
		for deadline := time.Now().Add(5 * time.Second); ; {
			extra = nil
			for _, s := range traces(t) {
				if !slices.Contains(before, s) {
					extra = append(extra, s)
				}
			}
			if len(extra) == 0 || time.Now().After(deadline) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		for _, s := range extra {
			t.Errorf("left behind: %s", s)
		}
	})
}

// traces lists everything on this host that belongs to the tested binary.
func traces(t testing.TB) []string {
	t.Helper()
	var all []string
	all = append(all, processes(t)...)
	all = append(all, groups()...)
	states.Range(func(_, d any) bool {
		for _, sub := range []string{"run", "store"} {
			entries, _ := os.ReadDir(filepath.Join(d.(string), sub))
			for _, e := range entries {
				all = append(all, "file "+filepath.Join(d.(string), sub, e.Name()))
			}
		}
		for _, table := range []string{"/proc/self/mountinfo", "/proc/net/unix"} {
			b, _ := os.ReadFile(table)
			for line := range strings.Lines(string(b)) {
				if strings.Contains(line, d.(string)) {
					all = append(all, table+": "+strings.TrimSpace(line))
				}
			}
		}
		return true
	})
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		b, _ := os.ReadFile(l)
		if strings.Contains(string(b), "sunaba") {
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

func sameFile(a, b os.FileInfo) bool {
	x, ok1 := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && x.Dev == y.Dev && x.Ino == y.Ino
}

// groups lists control groups named sunaba/*, in every hierarchy.
func groups() []string {
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/sunaba/*/cgroup.procs", "/sys/fs/cgroup/sunaba/*/cgroup.procs"} {
		m, _ := filepath.Glob(pattern)
		for _, p := range m {
			all = append(all, "group "+filepath.Dir(p))
		}
	}
	return all
}
