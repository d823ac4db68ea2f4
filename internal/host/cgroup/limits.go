package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"

	"github.com/sunaba-dev/sunaba/box"
)

// period is the span, in microseconds, over which CPU time is given out. It is
// the kernel's default; the least quota is 1 ms, hence 10 thousandths.
const period = 100_000

// set writes a value and fails unless the kernel then says want. It says what
// it did in the error: limits that seem set and are not are the worst kind.
func (g *Group) set(d dir, file, value, want string) error {
	p := d.path + "/" + file
	if err := g.m.fs.Write(p, value); err != nil {
		return fmt.Errorf("cannot set %s of control group %s to %s: %w", file, g.name, value, err)
	}
	got, err := g.m.fs.Read(p)
	if err != nil {
		return fmt.Errorf("cannot read back %s of control group %s: %w", file, g.name, err)
	}
	if got != want {
		return fmt.Errorf("cannot set %s of control group %s: wrote %s, kernel says %s, wanted %s", file, g.name, value, got, want)
	}
	return nil
}

func (g *Group) missing(controller string) error {
	_, err := g.m.find(controller)
	if err == nil {
		err = errors.New("the group is not in that hierarchy")
	}
	e := box.Errorf(box.Unusable, "set "+controller, "cannot set %s limit of control group %s: %w", controller, g.name, err)
	return e.WithHint("%s", advice(err))
}

// SetMemory changes the memory limit; 0 lifts it. The kernel rounds down to
// whole pages. Swap stays forbidden in every case: on version 1 by a limit on
// memory and swap together, or, where the kernel does not account for swap, by
// swappiness 0, which the kernel honours whenever it reclaims for this limit.
//
// A limit below what is in use makes version 1 answer EBUSY if it cannot
// reclaim enough, and version 2 kill.
func (g *Group) SetMemory(bytes int64) error {
	d, ok := g.dir("memory")
	if !ok {
		return g.missing("memory")
	}
	page := int64(os.Getpagesize())
	rounded := bytes - bytes%page
	if d.version == 2 {
		value, want := strconv.FormatInt(bytes, 10), strconv.FormatInt(rounded, 10)
		if bytes == 0 {
			value, want = "max", "max"
		}
		// The file is absent on a kernel without swap: nothing to forbid.
		if err := g.set(d, "memory.swap.max", "0", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// One process of a box killed and the others left is a state that
		// nobody planned for, unless it was asked for.
		all := "1"
		if g.killOne {
			all = "0"
		}
		if err := g.set(d, "memory.oom.group", all, all); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return g.set(d, "memory.max", value, want)
	}

	value, want := strconv.FormatInt(bytes, 10), strconv.FormatInt(rounded, 10)
	if bytes == 0 {
		// The largest number of pages that the counter holds.
		value, want = "-1", strconv.FormatInt(math.MaxInt64-math.MaxInt64%page, 10)
	}
	memory := func() error { return g.set(d, "memory.limit_in_bytes", value, want) }
	swap := func() error {
		err := g.set(d, "memory.memsw.limit_in_bytes", value, want)
		if errors.Is(err, fs.ErrNotExist) {
			return g.set(d, "memory.swappiness", "0", "0")
		}
		return err
	}
	if err := g.setSockets(d, bytes); err != nil {
		return err
	}
	// The sum may never be the smaller of the two, so the order depends on
	// the direction.
	now, err := g.readInt(d, "memory.limit_in_bytes")
	if err != nil {
		return fmt.Errorf("cannot read memory limit of control group %s: %w", g.name, err)
	}
	if bytes != 0 && rounded <= now {
		return errors.Join(memory(), swap())
	}
	if err := swap(); err != nil {
		return err
	}
	return memory()
}

// socketShare is the part of the memory limit that buffers of sockets may take
// beside it on version 1, which counts them by themselves, and only once they
// have a limit: without one, 25 processes with a connection to themselves on
// each descriptor take gigabytes that are nobody's. Version 2 counts them with
// the rest.
const socketShare = 8

func (g *Group) setSockets(d dir, bytes int64) error {
	page := int64(os.Getpagesize())
	limit := bytes / socketShare
	limit -= limit % page
	if bytes == 0 {
		limit = math.MaxInt64 - math.MaxInt64%page
	}
	v := strconv.FormatInt(limit, 10)
	if err := g.set(d, "memory.kmem.tcp.limit_in_bytes", v, v); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CountsSockets reports whether the memory limit bounds the buffers of sockets:
// always on version 2, on version 1 if the kernel has the file for it.
func (g *Group) CountsSockets() bool {
	d, ok := g.dir("memory")
	if !ok || d.version == 2 {
		return ok
	}
	_, err := g.readInt(d, "memory.kmem.tcp.limit_in_bytes")
	return err == nil
}

// SetCPU changes the CPU quota, in thousandths of one core, at least 10; 0
// lifts it.
func (g *Group) SetCPU(milli int64) error {
	d, ok := g.dir("cpu")
	if !ok {
		return g.missing("cpu")
	}
	quota := strconv.FormatInt(milli*period/1000, 10)
	if d.version == 2 {
		if milli == 0 {
			quota = "max"
		}
		value := fmt.Sprintf("%s %d", quota, period)
		return g.set(d, "cpu.max", value, value)
	}
	if milli == 0 {
		quota = "-1"
	}
	p := strconv.Itoa(period)
	if err := g.set(d, "cpu.cfs_period_us", p, p); err != nil {
		return err
	}
	return g.set(d, "cpu.cfs_quota_us", quota, quota)
}

// SetPids changes how many tasks the group may have, at least 1. Tasks beyond a
// lower number live on; no new ones come.
func (g *Group) SetPids(n int64) error {
	d, ok := g.dir("pids")
	if !ok {
		return g.missing("pids")
	}
	v := strconv.FormatInt(n, 10)
	return g.set(d, "pids.max", v, v)
}

func (g *Group) readInt(d dir, file string) (int64, error) {
	s, err := g.m.fs.Read(d.path + "/" + file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}
