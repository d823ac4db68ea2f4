package posture

import (
	"fmt"
	"slices"
)

// Unprivileged lists in which way a process has more power on the host than a
// process of a box may have; it is empty if it has not. Every thread must have
// four equal user ids that are not 0, four equal group ids that are not 0, no
// capability in any set that could become effective, and no_new_privs. What a
// box inherits of the caller's supplementary groups and of the bounding set (of
// no use without privilege to gain) is not judged here.
func (p *Process) Unprivileged() []string {
	var bad []string
	add := func(t Thread, format string, args ...any) {
		bad = append(bad, fmt.Sprintf("process %d (%s), thread %d: ", p.PID, p.Args[0], t.TID)+fmt.Sprintf(format, args...))
	}
	first := p.Threads[0]
	for _, t := range p.Threads {
		for _, id := range []struct {
			name      string
			ids, want [4]int
		}{{"user", t.UID, first.UID}, {"group", t.GID, first.GID}} {
			if slices.Contains(id.ids[:], 0) {
				add(t, "%s ids %v: 0 among them", id.name, id.ids)
			}
			if id.ids != [4]int{id.want[0], id.want[0], id.want[0], id.want[0]} {
				add(t, "%s ids %v are not all equal", id.name, id.ids)
			}
		}
		if caps := t.Inheritable | t.Permitted | t.Effective | t.Ambient; caps != 0 {
			add(t, "capabilities %#x", caps)
		}
		if !t.NoNewPrivs {
			add(t, "no_new_privs is not set")
		}
	}
	return bad
}

// Traced lists the threads that a process outside of the given ones traces. (A
// sentry traces its stubs now and then.)
func Traced(all []*Process) []string {
	var bad []string
	for _, p := range all {
		for _, t := range p.Threads {
			ours := slices.ContainsFunc(all, func(o *Process) bool { return o.PID == t.Tracer })
			if t.Tracer != 0 && !ours {
				bad = append(bad, fmt.Sprintf("process %d (%s), thread %d: traced by process %d", p.PID, p.Args[0], t.TID, t.Tracer))
			}
		}
	}
	return bad
}

// Apart lists what a process of a box shares with the world outside: a namespace,
// or an environment that is not empty, or that cannot be seen.
func (p *Process) Apart(outside *Process) []string {
	bad := p.Shares(outside)
	switch {
	case p.Hidden:
		bad = append(bad, fmt.Sprintf("process %d (%s): environment cannot be read", p.PID, p.Args[0]))
	case p.Environment != "":
		bad = append(bad, fmt.Sprintf("process %d (%s): environment %.80q", p.PID, p.Args[0], p.Environment))
	}
	return bad
}

// Shares lists the namespaces that a process has in common with one outside of
// its box, time aside.
func (p *Process) Shares(outside *Process) []string {
	return p.shares(outside, "user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
}

func (p *Process) shares(outside *Process, names ...string) []string {
	var bad []string
	for _, name := range names {
		if p.Namespaces[name] == outside.Namespaces[name] {
			bad = append(bad, fmt.Sprintf("process %d (%s): shares its %s namespace with the host", p.PID, p.Args[0], name))
		}
	}
	return bad
}

// filtered lists the threads that are under no system-call filter.
func (p *Process) filtered() []string {
	var bad []string
	for _, t := range p.Threads {
		if t.Seccomp != 2 {
			bad = append(bad, fmt.Sprintf("process %d (%s), thread %d: no system-call filter (mode %d)", p.PID, p.Args[0], t.TID, t.Seccomp))
		}
	}
	return bad
}

// Confined lists in which way a program of a box that runs on the host's own
// kernel falls short of its walls: all of [Process.Unprivileged], an empty
// bounding set, no namespace of the host's, time included, and every thread
// under a system-call filter. Its environment is its own.
func (p *Process) Confined(outside *Process) []string {
	bad := append(append(p.Unprivileged(), p.Shares(outside)...), p.shares(outside, "time")...)
	return append(append(bad, p.Bounded()...), p.filtered()...)
}

// Bounded lists the threads whose bounding set is not empty.
func (p *Process) Bounded() []string {
	var bad []string
	for _, t := range p.Threads {
		if t.Bounding != 0 {
			bad = append(bad, fmt.Sprintf("process %d (%s), thread %d: bounding set %#x", p.PID, p.Args[0], t.TID, t.Bounding))
		}
	}
	return bad
}

// Wall lists in which way a process that a program in a box talks to falls
// short of a wall: all of [Process.Unprivileged] and [Process.Apart], and every
// thread must be under a system-call filter.
func (p *Process) Wall(outside *Process) []string {
	return append(append(p.Unprivileged(), p.Apart(outside)...), p.filtered()...)
}
