package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// freezer is the group's folder in the tree by which it is stopped, and the file
// that says so: freezer.state of version 1 where that controller is mounted (in
// the tree of version 2 the kernel stops what is in there only), else
// cgroup.freeze of version 2, since Linux 5.2.
func (g *Group) freezer() (dir, string, error) {
	if d, ok := g.dir("freezer"); ok {
		return d, d.path + "/freezer.state", nil
	}
	if d, ok := g.v2(); ok {
		if _, err := g.m.fs.Read(d.path + "/cgroup.freeze"); err == nil {
			return d, d.path + "/cgroup.freeze", nil
		}
	}
	return dir{}, "", box.Errorf(box.Unsupported, "freeze control group", "cannot freeze control group %s: this host lets us use neither the freezer controller of version 1 nor cgroup.freeze of version 2", g.name)
}

// CanFreeze says why Freeze cannot work here, as Unsupported, or nil.
func (g *Group) CanFreeze() error {
	_, _, err := g.freezer()
	return err
}

// Freeze stops every process of the group and of those below it, and returns
// when the kernel says that all stand still: nothing of them runs until Thaw or
// Kill. A group that is frozen stays so. It is bounded by ctx and by 10 seconds;
// if it fails, the group is thawed again.
//
// What is sent to a frozen process waits: in version 1 SIGKILL, too.
func (g *Group) Freeze(ctx context.Context) error {
	d, file, err := g.freezer()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for delay := time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		// Version 1 looks for processes that were on their way at each write.
		err := g.m.fs.Write(file, freezeValue(d, true))
		still := false
		if err == nil {
			still, err = g.still(d)
		}
		if err == nil && still {
			return nil
		}
		if err == nil {
			err = wait(ctx, delay)
		}
		if err != nil {
			terr := g.m.fs.Write(file, freezeValue(d, false))
			return fmt.Errorf("cannot freeze control group %s: %w", g.name, errors.Join(err, terr))
		}
	}
}

// Thaw lets a frozen group go on, and checks that it is no longer held. One that
// is not frozen is no error.
func (g *Group) Thaw(ctx context.Context) error {
	d, file, err := g.freezer()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for delay := time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		err := g.m.fs.Write(file, freezeValue(d, false))
		held := true
		if err == nil {
			held, err = g.Frozen()
		}
		if err == nil && !held {
			return nil
		}
		if err == nil {
			err = wait(ctx, delay)
		}
		if err != nil {
			return fmt.Errorf("cannot thaw control group %s: %w", g.name, err)
		}
	}
}

// Frozen reports whether the group was told to stand still, by whomever, also if
// some of its processes do not yet. A host without a freezer has no such group.
func (g *Group) Frozen() (bool, error) {
	_, file, err := g.freezer()
	if err != nil {
		return false, nil // nothing there can be frozen
	}
	s, err := g.m.fs.Read(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err != nil && isGone(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot tell whether control group %s is frozen: %w", g.name, err)
	}
	return s != "THAWED" && s != "0", nil
}

func freezeValue(d dir, stop bool) string {
	switch {
	case d.version == 1 && stop:
		return "FROZEN"
	case d.version == 1:
		return "THAWED"
	case stop:
		return "1"
	}
	return "0"
}

// still reports whether all of the group stands still now.
func (g *Group) still(d dir) (bool, error) {
	if d.version == 1 {
		s, err := g.m.fs.Read(d.path + "/freezer.state")
		return s == "FROZEN", err
	}
	s, err := g.m.fs.Read(d.path + "/cgroup.events")
	return slices.Contains(strings.Split(s, "\n"), "frozen 1"), err
}
