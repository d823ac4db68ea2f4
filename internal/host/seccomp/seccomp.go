// Package seccomp is the system-call wall of a box that runs on the host's own
// kernel: which of the kernel's doors a program in it may knock at, and what
// it hears at the others.
//
// The wall is an allow-list. A kernel grows a few system calls with each
// version, and a list of bad ones is wrong on the day after it was written: the
// filters that forbade mount(2) did not know fsopen(2). So [Table] names every
// call that it lets through, and whatever it does not name does not exist
// (ENOSYS), which is also what a program hears on an older kernel and is
// prepared for.
//
// # What a refused program hears
//
// The answer is chosen so that the program goes on. A C library tries clone3
// and falls back to clone if told ENOSYS, but gives up on EPERM; libuv does the
// same with io_uring. Where a program knows that the call needs privilege
// (mount, bpf, keyctl), it hears EPERM, as it would without the privilege. An
// unknown address family is EAFNOSUPPORT, as on a kernel without its module.
// Only a call that no honest program of this architecture makes is answered by
// the end of the process: one through another architecture's table (int 0x80,
// x32), where the numbers mean something else.
//
// # Arguments
//
// A filter sees registers, not memory: a rule can judge flags, but neither a
// path nor a structure. That is why clone3, whose flags are in memory, must not
// exist. Every argument judged here is a 32-bit one to the kernel, which
// ignores the upper half of the register, so the filter ignores it too.
// Comparing all 64 bits is CVE-2019-10063: TIOCSTI with bit 32 set was not
// TIOCSTI to the filter, and was to the kernel.
//
// # From table to program
//
// [Compile] turns the table into a classic BPF program for one architecture, a
// binary search over ranges of numbers, in well under a millisecond. It can
// compile for an architecture that it does not run on, so both programs are
// tested on either. Tests run the program over every number against a plain
// reading of the table, and fail unless every instruction was executed.
//
// # Libraries
//
// github.com/elastic/go-seccomp-bpf was looked at (v1.6.0) and not taken: it
// compares 64 bits and has no comparison under a mask, which is the CVE above;
// its maps of all architectures' numbers cost a quarter of a millisecond at the
// start of every program that links it; and it scans linearly. libseccomp needs
// cgo. gVisor's compiler is good and as large as the program that this is
// linked into. What remains to be written without them is compile.go; gVisor's
// interpreter is used to test it.
package seccomp

import (
	"golang.org/x/sys/unix"
)

// Program is a compiled filter, ready to be installed; see seccomp(2). It may
// be installed any number of times and is not changed by that.
type Program []unix.SockFilter

// Action is what the filter does with a call: a SECCOMP_RET value.
type Action uint32

const (
	// Allow hands the call to the kernel.
	Allow Action = unix.SECCOMP_RET_ALLOW
	// Kill ends the process with SIGSYS, whatever it does about signals.
	Kill Action = unix.SECCOMP_RET_KILL_PROCESS
)

// Refuse is the action that answers with an error number and does nothing.
func Refuse(e unix.Errno) Action { return Action(unix.SECCOMP_RET_ERRNO | uint32(e)) }

// Errno is the error that the caller hears, or 0 if a has none.
func (a Action) Errno() unix.Errno {
	if a&unix.SECCOMP_RET_ACTION_FULL != unix.SECCOMP_RET_ERRNO {
		return 0
	}
	return unix.Errno(a & unix.SECCOMP_RET_DATA)
}

// String names the action: allow, kill, or the error number's name.
func (a Action) String() string {
	switch {
	case a == Allow:
		return "allow"
	case a == Kill:
		return "kill"
	default:
		return unix.ErrnoName(a.Errno())
	}
}

// Rule is what the filter does with one system call.
type Rule struct {
	Name string
	// AMD64 and ARM64 are the call's numbers, -1 where it does not exist.
	AMD64, ARM64 int
	// Group is the heading under which the call is listed, and Why its reason,
	// if the call needs one.
	Group, Why string
	// Clauses are judged in order; the first that holds decides.
	Clauses []Clause
	// Else is the action if no clause holds.
	Else Action
}

// Clause is an action and the conditions for it, all of which must hold.
type Clause struct {
	When []Cond
	Then Action
	Why  string
}

// Cond holds if the lower 32 bits of an argument, under Mask, are one of
// Values.
type Cond struct {
	Arg    int // 0 to 5
	Mask   uint32
	Values []uint32
}

// Unlisted is the action for a number that no rule names.
const Unlisted = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))

// Table returns the rules, by group. The caller may change the returned slice,
// but not what it refers to.
func Table() []Rule {
	var out []Rule
	for _, g := range plain {
		for _, c := range g.calls {
			out = append(out, Rule{Name: c.name, AMD64: c.amd64, ARM64: c.arm64, Group: g.name, Why: g.why, Else: g.action})
		}
	}
	return append(out, judged...)
}
