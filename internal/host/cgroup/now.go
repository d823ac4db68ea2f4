package cgroup

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Now reads the limits that the kernel holds the group to. One that is not there,
// also since its controller is not, is 0.
func (g *Group) Now() (Limits, error) {
	var l Limits
	for _, one := range []struct {
		to         *int64
		controller string
		files      [3]string // by version
		parse      func(d dir, text string) (int64, error)
	}{
		{&l.Memory, "memory", [3]string{1: "memory.limit_in_bytes", 2: "memory.max"}, whole},
		{&l.Pids, "pids", [3]string{1: "pids.max", 2: "pids.max"}, whole},
		{&l.MilliCPU, "cpu", [3]string{1: "cpu.cfs_quota_us", 2: "cpu.max"}, g.quota},
	} {
		d, ok := g.dir(one.controller)
		if !ok {
			continue
		}
		text, err := g.m.fs.Read(d.path + "/" + one.files[d.version])
		if err == nil {
			*one.to, err = one.parse(d, text)
		}
		if err != nil {
			return Limits{}, fmt.Errorf("cannot read limits of control group %s: %w", g.name, err)
		}
	}
	return l, nil
}

// whole parses a limit. Version 1 says the largest number of pages for none.
func whole(_ dir, text string) (int64, error) {
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if n > math.MaxInt64/2 {
		n = 0
	}
	return n, err
}

// quota parses a cpu quota, in thousandths of a core.
func (g *Group) quota(d dir, text string) (int64, error) {
	each := ""
	if d.version == 2 {
		text, each, _ = strings.Cut(text, " ")
	} else {
		var err error
		if each, err = g.m.fs.Read(d.path + "/cpu.cfs_period_us"); err != nil {
			return 0, err
		}
	}
	if text == "max" || text == "-1" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, err
	}
	of, err := strconv.ParseInt(each, 10, 64)
	if err == nil && of <= 0 {
		err = fmt.Errorf("a period of %d", of)
	}
	if err != nil {
		return 0, err
	}
	return n * 1000 / of, nil
}
