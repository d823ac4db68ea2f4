package policy

import (
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Range bounds one limit, ends included.
type Range struct {
	Name     string // configuration name, below resource_limits
	Min, Max int64  // thousandths of a core, bytes, nanoseconds or a count, as in box.Limits
	ZeroOff  bool   // zero is allowed too and means: no such limit
}

const (
	mib = 1 << 20
	tib = 1 << 40
)

// Ranges lists the bounds of every numeric limit. The lower ends are where a
// box stops being able to start a program; the upper ends are what Linux can
// hold, or a number beyond which a typing error is likelier than a wish.
func Ranges() []Range {
	second := int64(time.Second)
	return []Range{
		{Name: "cpu", Min: 10, Max: 1024 * 1000},                                        // CFS refuses quotas below 1 ms a period: sched-bwc.rst
		{Name: "memory", Min: 32 * mib, Max: 16 * tib},                                  // bytes
		{Name: "timeout_sec", Min: second / 10, Max: 7 * 86400 * second, ZeroOff: true}, // the configuration file refuses zero
		{Name: "idle_sec", Min: second / 10, Max: 7 * 86400 * second, ZeroOff: true},
		{Name: "grace_sec", Min: 0, Max: 60 * second},
		{Name: "max_processes", Min: 1, Max: 1 << 22},   // PID_MAX_LIMIT on 64 bits: proc(5)
		{Name: "max_open_files", Min: 16, Max: 1 << 20}, // fs.nr_open as Linux ships it: proc(5)
		{Name: "disk", Min: 1 * mib, Max: 16 * tib},     // ext4's largest file with 4 KiB blocks
		{Name: "max_files", Min: 16, Max: 1<<32 - 1},    // ext4 counts inodes in 32 bits
		{Name: "max_output", Min: 0, Max: 1 * tib},
	}
}

// RangeOf returns the range with that name; ok is false if there is none.
func RangeOf(name string) (r Range, ok bool) {
	for _, r := range Ranges() {
		if r.Name == name {
			return r, true
		}
	}
	return Range{}, false
}

// Holds reports whether n is in the range.
func (r Range) Holds(n int64) bool {
	return n >= r.Min && n <= r.Max || n == 0 && r.ZeroOff
}

// CheckLimits refuses limits that are out of range. The error is a
// [*box.Error] of kind Invalid and gives the numbers in the units of
// [box.Limits].
func CheckLimits(l box.Limits) error {
	values := map[string]int64{
		"cpu": l.MilliCPU, "memory": l.Memory,
		"timeout_sec": int64(l.Timeout), "idle_sec": int64(l.Idle), "grace_sec": int64(l.Grace),
		"max_processes": l.Processes, "max_open_files": l.OpenFiles,
		"disk": l.Disk, "max_files": l.Files, "max_output": l.Output,
	}
	units := map[string]string{
		"cpu": " thousandths of a core", "memory": " bytes", "disk": " bytes", "max_output": " bytes",
		"timeout_sec": " ns", "idle_sec": " ns", "grace_sec": " ns",
	}
	for _, r := range Ranges() {
		if n := values[r.Name]; !r.Holds(n) {
			return box.Errorf(box.Invalid, op, "cannot use limit %s of %d%s: allowed: %d to %d", r.Name, n, units[r.Name], r.Min, r.Max)
		}
	}
	if l.OnLimit != box.LimitRecord && l.OnLimit != box.LimitKill {
		return box.Errorf(box.Invalid, op, "cannot use on_limit %q: allowed: record, kill", l.OnLimit)
	}
	return nil
}

// InForce puts a decided spec into the form that results show. Its lists are
// never nil.
func InForce(spec box.Spec, trust box.Trust, user box.User) box.Policy {
	l := spec.Limits
	return box.Policy{
		Trust: trust,
		Limits: box.LimitsJSON{
			CPU:         float64(l.MilliCPU) / 1000,
			MemoryBytes: l.Memory,
			TimeoutSec:  l.Timeout.Seconds(),
			IdleSec:     l.Idle.Seconds(),
			Processes:   l.Processes,
			OpenFiles:   l.OpenFiles,
			DiskBytes:   l.Disk,
			Files:       l.Files,
			OutputBytes: l.Output,
			OnLimit:     l.OnLimit,
		},
		Network: spec.Net,
		Mounts:  append([]box.Mount{}, spec.Mounts...),
		Volumes: append([]box.Volume{}, spec.Volumes...),
		NoMount: append([]string{}, spec.NoMount...),
		Workdir: spec.Workdir,
		User:    user,
	}
}
