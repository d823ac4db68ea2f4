package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// Group is one box's group in every tree that matters. Its methods may be
// called concurrently; it holds no open file, so it needs no Close.
type Group struct {
	m    *Manager
	name string
	dirs []dir // version 1 first
	weak []string

	killOne bool // see Limits
}

// dir is the group's folder in one tree.
type dir struct {
	*tree
	path string
}

// Name returns the name given to Create.
func (g *Group) Name() string { return g.name }

// Weak lists, one sentence each, the wanted limits that are not enforced. It is
// empty unless [Limits.AllowMissing] was set.
func (g *Group) Weak() []string { return slices.Clone(g.weak) }

// Create makes the group sunaba/<name> in every tree, sets the limits and reads
// each back. If anything fails, nothing is left behind. A name in use is an
// error that matches [fs.ErrExist]; a host that cannot do what is asked gives a
// [box.Error] of kind unusable.
func (m *Manager) Create(name string, l Limits) (*Group, error) {
	if !validName(name) {
		return nil, box.Errorf(box.Invalid, "create control group", "cannot create control group %q: name must be 1 to 64 of [A-Za-z0-9_-]", name)
	}
	if l.Memory < 0 || l.Pids < 0 || l.MilliCPU != 0 && l.MilliCPU < 10 {
		return nil, box.Errorf(box.Invalid, "create control group", "cannot create control group %s: limits out of range: %+v", name, l)
	}
	g := &Group{m: m, name: name, killOne: l.KillOne}
	want := map[string]bool{"memory": l.Memory > 0, "cpu": l.MilliCPU > 0, "pids": l.Pids > 0}
	for _, c := range controllers {
		if _, err := m.find(c); err != nil && want[c] {
			if !l.AllowMissing {
				e := box.Errorf(box.Unusable, "create control group", "cannot limit %s: %w", c, err)
				return nil, e.WithHint("%s", advice(err))
			}
			g.weak = append(g.weak, fmt.Sprintf("%s limit is not enforced by the host: %v", c, err))
		}
	}
	if err := g.make(); err != nil {
		g.discard()
		return nil, fmt.Errorf("cannot create control group %s: %w", name, err)
	}
	if len(g.dirs) == 0 {
		e := box.Errorf(box.Unusable, "create control group", "cannot create control group %s: no hierarchy is usable%s", name, m.reasons())
		return nil, e.WithHint("%s", advice(errors.Join(m.errs()...)))
	}
	if err := g.setAll(l); err != nil {
		g.discard()
		return nil, err
	}
	return g, nil
}

// make makes the folders and switches controllers on.
func (g *Group) make() error {
	for _, t := range g.m.trees {
		if t.err != nil {
			continue
		}
		d := dir{t, t.parent() + "/" + g.name}
		if err := g.m.mkdir(d); err != nil {
			return err
		}
		g.dirs = append(g.dirs, d)
		// From here on the parent cannot vanish: it has a child.
		if err := g.m.enable(t); err != nil {
			return err
		}
	}
	return nil
}

// mkdir makes parent and group. Another process may remove the empty parent
// between the two steps, so both are repeated.
func (m *Manager) mkdir(d dir) error {
	var err error
	for range 1000 {
		if err = m.fs.Mkdir(d.parent()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err = m.fs.Mkdir(d.path)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// setAll sets every limit whose controller is there.
func (g *Group) setAll(l Limits) error {
	steps := []struct {
		controller string
		wanted     bool
		set        func() error
	}{
		{"memory", l.Memory > 0, func() error { return g.SetMemory(l.Memory) }},
		{"cpu", l.MilliCPU > 0, func() error { return g.SetCPU(l.MilliCPU) }},
		{"pids", l.Pids > 0, func() error { return g.SetPids(l.Pids) }},
	}
	for _, s := range steps {
		if _, ok := g.dir(s.controller); !ok || !s.wanted {
			continue // a wanted one is in g.weak by now
		}
		if err := s.set(); err != nil {
			return err
		}
	}
	return nil
}

// dir returns the group's folder in the tree that has a controller.
func (g *Group) dir(controller string) (dir, bool) {
	for _, d := range g.dirs {
		if d.has(controller) {
			return d, true
		}
	}
	return dir{}, false
}

// v2 returns the group's folder in the tree of version 2.
func (g *Group) v2() (dir, bool) {
	for _, d := range g.dirs {
		if d.version == 2 {
			return d, true
		}
	}
	return dir{}, false
}

// discard removes what a failed Create made. No process was ever in it.
func (g *Group) discard() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	g.Remove(ctx)
}

// Open returns an existing group, such as one left by an earlier process. It
// gives a [box.Error] of kind not_found if no tree has it.
func (m *Manager) Open(name string) (*Group, error) {
	g := &Group{m: m, name: name}
	for _, t := range m.trees {
		_, err := m.fs.Read(t.parent() + "/" + name + "/cgroup.procs")
		if host.IsShortage(err) {
			return nil, fmt.Errorf("cannot open control group %q: %w", name, err)
		}
		if err == nil && validName(name) {
			g.dirs = append(g.dirs, dir{t, t.parent() + "/" + name})
		}
	}
	if len(g.dirs) == 0 {
		return nil, box.Errorf(box.NotFound, "open control group", "cannot open control group %q: no such group", name)
	}
	return g, nil
}

// List returns the names of all groups of this program in any tree, whoever
// made them, in order.
func (m *Manager) List() ([]string, error) {
	var names []string
	for _, t := range m.trees {
		dirs, err := m.fs.Dirs(t.parent())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot list control groups: %w", err)
		}
		names = append(names, slices.DeleteFunc(dirs, func(n string) bool { return !validName(n) })...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// errs returns why trees are unusable.
func (m *Manager) errs() []error {
	var errs []error
	for _, t := range m.trees {
		if t.err != nil {
			errs = append(errs, t.err)
		}
	}
	return errs
}

func (m *Manager) reasons() string {
	s := ""
	for _, err := range m.errs() {
		s += "; " + err.Error()
	}
	return s
}
