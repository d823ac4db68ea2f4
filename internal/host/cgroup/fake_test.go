package cgroup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeV2 is a tree of version 2 in a temporary folder with the kernel's rules:
// files appear with a group, controllers come from above, inner groups hold no
// processes, a limit is rounded, and only empty groups can be removed. Process
// ids are ones that no real process has.
type fakeV2 struct {
	kernelFS
	top      string
	readOnly []string // folders that an ordinary user may not write in
	rootless bool     // the top is a namespace's: its rules are an inner group's
	drop     string   // file whose writes the kernel pretends to take
}

const fakePID = 90_000_000

func newFakeV2(t *testing.T, controllers string) *fakeV2 {
	f := &fakeV2{top: t.TempDir()}
	f.populate(f.top, controllers)
	return f
}

func (f *fakeV2) mountinfo() string {
	return fmt.Sprintf("30 23 0:26 / %s rw,nosuid - cgroup2 cgroup2 rw\n", f.top)
}

func (f *fakeV2) put(path, text string) { os.WriteFile(path, []byte(text+"\n"), 0o644) }

func (f *fakeV2) populate(dir, controllers string) {
	for name, text := range map[string]string{
		"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": "",
		"cgroup.kill": "", "cgroup.freeze": "0", "cgroup.events": "populated 0\nfrozen 0",
		"cpu.stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500",
	} {
		f.put(dir+"/"+name, text)
	}
	f.offer(dir, controllers)
}

// offer makes the files of controllers in a group.
func (f *fakeV2) offer(dir, controllers string) {
	f.put(dir+"/cgroup.controllers", controllers)
	for _, c := range strings.Fields(controllers) {
		for name, text := range map[string]map[string]string{
			"memory": {"memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0", "memory.current": "4096",
				"memory.peak": "8192", "memory.events": "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 1"},
			"cpu":  {"cpu.max": "max 100000", "cpu.stat": "usage_usec 1500\nnr_periods 9\nnr_throttled 4"},
			"pids": {"pids.max": "max", "pids.current": "2", "pids.peak": "7", "pids.events": "max 5"},
		}[c] {
			if _, err := os.Stat(dir + "/" + name); err != nil || name == "cpu.stat" {
				f.put(dir+"/"+name, text)
			}
		}
	}
}

func (f *fakeV2) denied(dir string) bool { return slices.Contains(f.readOnly, dir) }

func (f *fakeV2) Mkdir(path string) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(path); err == nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: unix.EEXIST} // before any right is checked
	}
	if f.denied(dir) {
		return &fs.PathError{Op: "mkdir", Path: path, Err: unix.EACCES}
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	on, _ := f.Read(dir + "/cgroup.subtree_control")
	f.populate(path, on)
	return nil
}

func (f *fakeV2) Rmdir(path string) error {
	dirs, err := f.Dirs(path)
	if err != nil {
		return err
	}
	if procs, _ := f.Read(path + "/cgroup.procs"); len(dirs) > 0 || procs != "" {
		return unix.EBUSY
	}
	return os.RemoveAll(path)
}

func (f *fakeV2) Write(path, value string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	dir, file := filepath.Split(path)
	dir = strings.TrimSuffix(dir, "/")
	fail := func(err error) error { return &fs.PathError{Op: "write", Path: path, Err: err} }
	if f.denied(dir) {
		return fail(unix.EACCES)
	}
	procs, _ := f.Read(dir + "/cgroup.procs")
	on, _ := f.Read(dir + "/cgroup.subtree_control")
	inner := dir != f.top || f.rootless
	switch {
	case file == f.drop:
		return nil
	case file == "cgroup.subtree_control":
		c := strings.TrimPrefix(value, "+")
		if have, _ := f.Read(dir + "/cgroup.controllers"); !slices.Contains(strings.Fields(have), c) {
			return fail(unix.ENOENT)
		}
		if inner && procs != "" {
			return fail(unix.EBUSY)
		}
		on = strings.TrimSpace(on + " " + c)
		f.put(path, on)
		dirs, _ := f.Dirs(dir)
		for _, d := range dirs {
			f.offer(dir+"/"+d, on)
		}
	case file == "cgroup.procs":
		if inner && on != "" {
			return fail(unix.EBUSY)
		}
		filepath.WalkDir(f.top, func(p string, e fs.DirEntry, err error) error {
			if e.Name() == "cgroup.procs" {
				text, _ := f.Read(p)
				f.put(p, strings.Join(slices.DeleteFunc(strings.Fields(text), func(s string) bool { return s == value }), "\n"))
			}
			return nil
		})
		text, _ := f.Read(path)
		f.put(path, strings.TrimSpace(text+"\n"+value))
	case file == "cgroup.kill":
		filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if e.Name() == "cgroup.procs" {
				f.put(p, "")
			}
			return nil
		})
	case file == "memory.max" && value != "max":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fail(unix.EINVAL)
		}
		page := int64(os.Getpagesize())
		f.put(path, strconv.FormatInt(n/page*page, 10))
	default:
		f.put(path, value)
	}
	return nil
}
