package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// Counter is one number of the kernel and where it was read. An empty Source
// means that this host cannot tell.
type Counter struct {
	N      int64
	Source string // as in "host cgroup v1 memory.oom_control"
}

// Stats is a group's account at one moment. The counters only grow, except the
// ones called current.
type Stats struct {
	CPU           Counter // nanoseconds of CPU time
	Throttled     Counter // periods in which the CPU quota held the group back
	MemoryCurrent Counter // bytes
	MemoryPeak    Counter // bytes; version 2 has it since Linux 5.19
	// OOMKills counts processes of the group that the kernel killed for lack
	// of memory, also because the whole host, or a group above, had none left:
	// see OwnOOM.
	OOMKills Counter
	// OwnOOM counts how often the group had to make do with less than its
	// programs asked for because of its own limit. Version 1 does not tell this
	// from MemoryLimitHits, which is taken then.
	OwnOOM          Counter
	MemoryLimitHits Counter // times that usage ran into the limit, reclaim included; at least
	PidsCurrent     Counter
	PidsPeak        Counter // since Linux 6.1
	PidsMax         Counter // times that the task limit refused a fork
}

// CPUTime is the CPU counter as a duration.
func (s Stats) CPUTime() time.Duration { return time.Duration(s.CPU.N) }

// source is one place where a counter may be found.
type source struct {
	controller string // "" = the version 2 folder, whatever controllers it has
	version    int
	file       string
	key        string // of a flat keyed file; "" = the file is one number
	scale      int64
}

// Stats reads all counters. Reading is not atomic over files.
func (g *Group) Stats() (Stats, error) {
	var s Stats
	files := map[string]string{} // each is read once
	for _, c := range []struct {
		to   *Counter
		from []source
	}{
		{&s.CPU, []source{
			{"cpuacct", 1, "cpuacct.usage", "", 1},
			{"", 2, "cpu.stat", "usage_usec", 1000},
		}},
		{&s.Throttled, []source{
			{"cpu", 1, "cpu.stat", "nr_throttled", 1},
			{"cpu", 2, "cpu.stat", "nr_throttled", 1},
		}},
		{&s.MemoryCurrent, []source{
			{"memory", 1, "memory.usage_in_bytes", "", 1},
			{"memory", 2, "memory.current", "", 1},
		}},
		// Before the peak: of whom was killed that is known by then.
		{&s.OOMKills, []source{
			{"memory", 1, "memory.oom_control", "oom_kill", 1},
			{"memory", 2, "memory.events", "oom_kill", 1},
		}},
		{&s.MemoryPeak, []source{
			{"memory", 1, "memory.max_usage_in_bytes", "", 1},
			{"memory", 2, "memory.peak", "", 1},
		}},
		{&s.OwnOOM, []source{
			{"memory", 2, "memory.events", "oom", 1},
		}},
		{&s.MemoryLimitHits, []source{
			{"memory", 1, "memory.failcnt", "", 1},
			{"memory", 2, "memory.events", "max", 1},
		}},
		{&s.PidsCurrent, []source{{"pids", 1, "pids.current", "", 1}, {"pids", 2, "pids.current", "", 1}}},
		{&s.PidsPeak, []source{{"pids", 1, "pids.peak", "", 1}, {"pids", 2, "pids.peak", "", 1}}},
		{&s.PidsMax, []source{{"pids", 1, "pids.events", "max", 1}, {"pids", 2, "pids.events", "max", 1}}},
	} {
		for _, from := range c.from {
			got, err := g.read(files, from)
			if err != nil {
				return Stats{}, fmt.Errorf("cannot read account of control group %s: %w", g.name, err)
			}
			if got.Source != "" {
				*c.to = got
				break
			}
		}
	}
	if err := g.correctHits(&s); err != nil {
		return s, err
	}
	if s.OwnOOM.Source == "" {
		s.OwnOOM = s.MemoryLimitHits
	}
	return s, nil
}

// OutOfMemory reports whether the kernel killed in the group because the group
// itself had used up its memory.
func (s Stats) OutOfMemory() bool { return s.OOMKills.N > 0 && s.OwnOOM.N > 0 }

// correctHits makes up for failcnt, which stays 0 in recent kernels (seen in
// 6.18): a peak at the limit means that the limit was hit at least once. The
// kernel kills only for charges of up to 8 pages, so a peak further away from
// the limit than that is no hit.
func (g *Group) correctHits(s *Stats) error {
	d, ok := g.dir("memory")
	if !ok || d.version != 1 || s.MemoryLimitHits.N > 0 {
		return nil
	}
	limit, err := g.readInt(d, "memory.limit_in_bytes")
	if err != nil {
		return fmt.Errorf("cannot read account of control group %s: %w", g.name, err)
	}
	if s.MemoryPeak.N >= limit-8*int64(os.Getpagesize()) {
		s.MemoryLimitHits = Counter{1, s.MemoryPeak.Source}
	}
	return nil
}

// read returns an empty Counter if the place does not exist on this host.
func (g *Group) read(files map[string]string, from source) (Counter, error) {
	d, ok := g.dir(from.controller)
	if from.controller == "" {
		d, ok = g.v2()
	}
	if !ok || d.version != from.version {
		return Counter{}, nil
	}
	path := d.path + "/" + from.file
	text, known := files[path]
	var err error
	if !known {
		text, err = g.m.fs.Read(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := g.m.fs.Read(d.path + "/cgroup.procs"); err != nil {
			return Counter{}, err // the group is gone: zeros would be a lie
		}
		return Counter{}, nil
	}
	if err != nil {
		return Counter{}, err
	}
	files[path] = text
	if from.key != "" {
		if text, ok = flatKey(text, from.key); !ok {
			return Counter{}, nil
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Counter{}, fmt.Errorf("cannot parse %s: %w", from.file, err)
	}
	return Counter{n * from.scale, fmt.Sprintf("host cgroup v%d %s", d.version, from.file)}, nil
}

// flatKey finds a value in lines of "key value".
func flatKey(text, key string) (string, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			return f[1], true
		}
	}
	return "", false
}
