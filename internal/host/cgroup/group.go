package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Add moves a process with all its threads into the group, in every tree, and
// checks that it arrived. Children that it makes later are born in the group.
// Memory that it already has stays charged where it was.
//
// The pid must belong to a child of the caller that has not been waited for, or
// be held otherwise: a pid alone may have been given to somebody else.
func (g *Group) Add(pid int) error {
	if pid <= 0 {
		return fmt.Errorf("cannot add process %d to control group %s: not a process id", pid, g.name)
	}
	for _, d := range g.dirs {
		if err := g.m.fs.Write(d.path+"/cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("cannot add process %d to control group %s: %w", pid, g.name, err)
		}
	}
	for _, d := range g.dirs {
		pids, err := g.procsIn(d.path)
		if err != nil {
			return fmt.Errorf("cannot add process %d to control group %s: %w", pid, g.name, err)
		}
		if !slices.Contains(pids, pid) {
			return fmt.Errorf("cannot add process %d to control group %s: it is not in %s", pid, g.name, d.path)
		}
	}
	return nil
}

// FD opens the group's folder in the tree of version 2 for CLONE_INTO_CGROUP
// (SysProcAttr.UseCgroupFD). On a hybrid host that tree has no limits, and
// [Group.Add] is needed as well. The caller closes the file.
func (g *Group) FD() (*os.File, error) {
	d, ok := g.v2()
	if !ok {
		return nil, fmt.Errorf("cannot open control group %s: this host has no usable version 2 tree", g.name)
	}
	return os.Open(d.path)
}

// Procs returns the process ids in the group and in groups below it, in any
// tree, sorted. It is empty if the group is gone.
func (g *Group) Procs() ([]int, error) {
	var all []int
	for _, d := range g.dirs {
		for _, p := range g.m.below(d.path) {
			pids, err := g.procsIn(p)
			if err != nil {
				return nil, fmt.Errorf("cannot list processes of control group %s: %w", g.name, err)
			}
			all = append(all, pids...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// MemoryProcs is Procs of the tree alone that bounds memory: where each controller
// has a tree of its own, there is one list to be read and not as many as trees.
func (g *Group) MemoryProcs() ([]int, error) {
	d, ok := g.dir("memory")
	if !ok {
		return nil, g.missing("memory")
	}
	return (&Group{m: g.m, name: g.name, dirs: []dir{d}}).Procs()
}

// errForeignPID means a process that this pid namespace cannot name.
var errForeignPID = errors.New("a process of another pid namespace is in the group")

func (g *Group) procsIn(path string) ([]int, error) {
	text, err := g.m.fs.Read(path + "/cgroup.procs")
	if errors.Is(err, fs.ErrNotExist) || isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(text) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		if pid == 0 {
			return nil, errForeignPID
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// below returns path and the folders below it, parents after children. A group
// that vanishes meanwhile is left out.
func (m *Manager) below(path string) []string {
	var all []string
	names, _ := m.fs.Dirs(path)
	for _, n := range names {
		all = append(all, m.below(path+"/"+n)...)
	}
	return append(all, path)
}
