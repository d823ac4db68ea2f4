package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds Kill and Remove when the context has no earlier deadline.
const patience = 10 * time.Second

// Kill ends every process in the group and returns when none is left. It works
// on a frozen group and against programs that fork without pause. Where
// cgroup.kill exists (version 2, Linux 5.14, also on hybrid hosts) the kernel
// does it; elsewhere the group is frozen, every process is signaled, and the
// group is thawed, until it is empty. It is bounded by ctx and by 10 seconds.
//
// Ended processes remain as zombies until their parent waits for them; they are
// no longer in the group.
func (g *Group) Kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for delay := time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		killErr := g.killOnce(ctx)
		pids, err := g.Procs()
		if err == nil && len(pids) == 0 {
			return nil
		}
		if wait(ctx, delay) != nil {
			return fmt.Errorf("cannot kill control group %s: processes %v are left: %w", g.name, pids, errors.Join(context.Cause(ctx), killErr, err))
		}
	}
}

func (g *Group) killOnce(ctx context.Context) error {
	err := fs.ErrNotExist
	if d, ok := g.v2(); ok {
		err = g.m.fs.Write(d.path+"/cgroup.kill", "1")
	}
	if err != nil {
		g.freeze(ctx) // best effort: without a freezer the loop has to win
	}
	// Also after cgroup.kill: a process may be in a version 1 tree only.
	err = g.signalAll()
	// A task frozen by version 1 keeps SIGKILL pending until it is thawed.
	return errors.Join(err, g.thaw())
}

// freeze stops the group and waits a little until the kernel says so.
func (g *Group) freeze(ctx context.Context) {
	d, ok := g.dir("freezer")
	file, value, done := "freezer.state", "FROZEN", func(s string) bool { return s == "FROZEN" }
	if !ok {
		if d, ok = g.v2(); !ok {
			return
		}
		file, value, done = "cgroup.freeze", "1", func(string) bool { return true }
	}
	for range 20 {
		if g.m.fs.Write(d.path+"/"+file, value) != nil {
			return
		}
		if s, err := g.m.fs.Read(d.path + "/" + file); err != nil || done(s) {
			return
		}
		if wait(ctx, time.Millisecond) != nil {
			return
		}
	}
}

// thaw lets a group frozen by version 1 go on, and groups below it too. One
// frozen by version 2 dies frozen.
func (g *Group) thaw() error {
	d, ok := g.dir("freezer")
	if !ok {
		return nil
	}
	var errs []error
	for _, p := range g.m.below(d.path) {
		if err := g.m.fs.Write(p+"/freezer.state", "THAWED"); err != nil && !errors.Is(err, fs.ErrNotExist) && !isGone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// signalAll sends SIGKILL to every process. A process id may be given to
// another process at any moment, so each is turned into a descriptor first and
// then looked for in the group again: only if it is still there does the
// descriptor mean one of ours.
func (g *Group) signalAll() error {
	pids, err := g.Procs()
	if err != nil || len(pids) == 0 {
		return err
	}
	const batch = 128 // descriptors held at a time
	for chunk := range slices.Chunk(pids, batch) {
		fds := make(map[int]int, len(chunk))
		for _, pid := range chunk {
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				fds[pid] = fd
			}
		}
		still, err := g.Procs()
		for pid, fd := range fds {
			if err == nil && slices.Contains(still, pid) {
				unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			}
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the group from every tree, and the folder sunaba with it when
// it was the last. The group must be empty: the kernel may need a moment after
// Kill, so EBUSY is tried again until ctx ends, at most 10 seconds. A group
// that is gone already is no error.
func (g *Group) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for delay := time.Millisecond; ; delay = min(2*delay, 100*time.Millisecond) {
		err := g.rmdirs()
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EBUSY) || wait(ctx, delay) != nil {
			return fmt.Errorf("cannot remove control group %s: %w", g.name, err)
		}
	}
	for _, d := range g.dirs {
		g.m.fs.Rmdir(d.parent()) // refused while other groups are in it
	}
	return nil
}

func (g *Group) rmdirs() error {
	var errs []error
	for _, d := range g.dirs {
		for _, p := range g.m.below(d.path) {
			if err := g.m.fs.Rmdir(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// wait returns nil after d and an error if ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isGone reports whether a file's group was removed while it was open.
func isGone(err error) bool { return errors.Is(err, unix.ENODEV) }
