// Package cgroup gives every box one group of processes that the host kernel
// limits, counts and kills, whatever mixture of control group versions the
// host has.
//
// Version 1 mounts one tree per controller (or per pair, as in cpu,cpuacct);
// version 2 has a single tree in which controllers must be switched on from the
// top down and in which only leaves may hold processes; a hybrid host has both,
// with the limits in version 1 and the better way to kill in version 2. A
// [Manager] finds out once which controller lives where. A [Group] is then the
// same name, sunaba/<name>, in every tree that matters, and its methods hide
// which file does what.
//
// Nothing here believes a write. Each limit is read back after it was set, and
// each process is looked for in the group after it was moved. Each number in
// [Stats] names the file that it came from, since the cause of a run's end is
// taken from these counters and never from an exit code.
//
// Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and
// Documentation/admin-guide/cgroup-v1/ of the Linux kernel.
package cgroup

import (
	"errors"
	"slices"
	"strings"
)

// folder holds all groups of this program in each tree.
const folder = "sunaba"

// Limits bounds one group. Zero means no limit of that kind.
type Limits struct {
	Memory   int64 // bytes of memory, page cache included; swap is not added to it but forbidden
	MilliCPU int64 // thousandths of one core, in periods of 100 ms; at least 10
	Pids     int64 // tasks, threads included
	// KillOne lets the kernel end one process of a group that is out of memory,
	// as version 1 always does. Otherwise it ends all of the group, where it can
	// (version 2).
	KillOne bool
	// AllowMissing makes Create go on when no controller for a wanted limit
	// is usable; the limit is then named by [Group.Weak] instead of failing.
	AllowMissing bool
}

// controllers are the ones that carry a limit, in the order of reports.
//
//house:const an array that nobody writes
var controllers = [...]string{"memory", "cpu", "pids"}

// tree is one mounted hierarchy and the place in it where groups are made.
type tree struct {
	version     int      // 1 or 2
	base        string   // folder below which sunaba/ is made
	controllers []string // what the tree can limit or count below base
	err         error    // why no group can be made here; nil if one could
}

func (t *tree) has(controller string) bool { return slices.Contains(t.controllers, controller) }

func (t *tree) parent() string { return t.base + "/" + folder }

// Manager knows the host's trees. It is immutable after [Detect] and safe for
// concurrent use, also by several processes on one host.
type Manager struct {
	fs    fsys
	trees []*tree // version 1 first; at most one of version 2, at the end
}

// find returns the tree with a controller. The error says why there is none.
func (m *Manager) find(controller string) (*tree, error) {
	for _, t := range m.trees {
		if t.has(controller) {
			return t, t.err
		}
	}
	return nil, errors.New("no mounted hierarchy offers the controller")
}

// validName reports whether a group may have this name: 1 to 64 of
// [A-Za-z0-9_-]. A dot is refused because the kernel's own files have one.
func validName(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	return len(name) >= 1 && len(name) <= 64 && strings.Trim(name, allowed) == ""
}
