package seccomp

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data of linux/seccomp.h, which is what a filter
// sees. The upper half of an argument is not looked at; both architectures are
// little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

const (
	// x32 marks a number of amd64's third ABI, with 32-bit pointers.
	x32 = 0x40000000
	// noCall is -1, which stands for a call that the headers a program was
	// compiled with did not know. It is no x32 call.
	noCall = 0xffffffff
)

// Compile turns the table into a program for an architecture by its name in Go,
// "amd64" or "arm64"; any other is an error, for no numbers are known. A
// program takes about 3 KiB and is the same each time.
func Compile(goarch string) (Program, error) { return assemble(goarch, segments(goarch), Unlisted) }

// assemble writes a program that does with each number what its segment says,
// and none with the call that does not exist.
func assemble(goarch string, s []segment, none Action) (Program, error) {
	b := builder{rev: make([]unix.SockFilter, 0, 1024), rets: map[Action]int{}}
	var arch uint32
	switch goarch {
	case "amd64":
		arch = unix.AUDIT_ARCH_X86_64
	case "arm64":
		arch = unix.AUDIT_ARCH_AARCH64
	default:
		return nil, fmt.Errorf("cannot compile filter: architecture %s has no table", goarch)
	}
	// From the last part to the first; what a load fills the accumulator for is
	// always written just before it.
	numbers := b.search(s)
	if goarch == "amd64" {
		other := b.jump(unix.BPF_JEQ, noCall, b.ret(none), b.ret(Kill))
		b.jump(unix.BPF_JSET, x32, other, numbers)
	}
	number := b.load(offNumber)
	b.jump(unix.BPF_JEQ, arch, number, b.ret(Kill))
	b.load(offArch)
	slices.Reverse(b.rev)
	return b.rev, nil
}

// segment is a range of numbers with the same outcome: from first up to the
// next segment's first.
type segment struct {
	first uint32
	do    Action
	rule  *Rule // not nil if arguments decide
}

// segments covers all numbers, in order.
func segments(goarch string) []segment {
	calls := make([]segment, 0, 512)
	for _, g := range plain {
		for _, c := range g.calls {
			calls = addCall(calls, goarch, c.amd64, c.arm64, segment{do: g.action})
		}
	}
	for i := range judged {
		calls = addCall(calls, goarch, judged[i].AMD64, judged[i].ARM64, segment{rule: &judged[i]})
	}
	return cover(calls, Unlisted)
}

// addCall appends a segment of one number, if the architecture has the call.
func addCall(calls []segment, goarch string, amd64, arm64 int, s segment) []segment {
	n := amd64
	if goarch == "arm64" {
		n = arm64
	}
	if n < 0 {
		return calls
	}
	s.first = uint32(n)
	return append(calls, s)
}

// cover makes segments of one number each into segments of all numbers, of
// which the others get the action rest.
func cover(calls []segment, rest Action) []segment {
	slices.SortFunc(calls, func(a, b segment) int { return cmp.Compare(a.first, b.first) })

	out := make([]segment, 0, len(calls))
	next := uint32(0)
	for _, c := range calls {
		if c.first > next {
			out = extend(out, segment{first: next, do: rest})
		}
		out = extend(out, c)
		next = c.first + 1
	}
	return extend(out, segment{first: next, do: rest})
}

// extend appends s, unless the last range goes on with the same outcome.
func extend(out []segment, s segment) []segment {
	if n := len(out); n > 0 && out[n-1].rule == nil && s.rule == nil && out[n-1].do == s.do {
		return out
	}
	return append(out, s)
}

// builder writes a program from its end to its beginning. Jumps only go
// forward, so what an instruction jumps to has been written before it, and its
// distance is known. Positions count from the end of the program.
type builder struct {
	rev  []unix.SockFilter
	rets map[Action]int
}

func (b *builder) put(f unix.SockFilter) int {
	b.rev = append(b.rev, f)
	return len(b.rev) - 1
}

// distance is how far an instruction written now would have to jump to reach p.
func (b *builder) distance(p int) int { return len(b.rev) - p - 1 }

// maxJump is what the 8-bit distance of a conditional jump can reach.
const maxJump = 255

// ret returns the position of an instruction that ends the program with a: one
// within reach, or a new one.
func (b *builder) ret(a Action) int {
	if p, ok := b.rets[a]; ok && b.distance(p) < maxJump/2 {
		return p
	}
	b.rets[a] = b.put(unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(a)})
	return b.rets[a]
}

// jump goes on at yes or at no as op says of the accumulator and k.
func (b *builder) jump(op uint16, k uint32, yes, no int) int {
	if b.distance(yes) >= maxJump { // one less, because no may need a step too
		yes = b.put(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(b.distance(yes))})
	}
	if b.distance(no) > maxJump {
		no = b.put(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(b.distance(no))})
	}
	return b.put(unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, K: k, Jt: uint8(b.distance(yes)), Jf: uint8(b.distance(no))})
}

// load fills the accumulator and goes on at the instruction written last.
func (b *builder) load(offset uint32) int {
	return b.put(unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

// search finds the segment of the number in the accumulator.
func (b *builder) search(s []segment) int {
	if len(s) > 1 {
		mid := len(s) / 2
		high := b.search(s[mid:])
		low := b.search(s[:mid])
		return b.jump(unix.BPF_JGE, s[mid].first, high, low)
	}
	if s[0].rule == nil {
		return b.ret(s[0].do)
	}
	return b.judge(s[0].rule)
}

// judge goes through the clauses of a rule.
func (b *builder) judge(r *Rule) int {
	next := b.ret(r.Else)
	for _, c := range slices.Backward(r.Clauses) {
		then := b.ret(c.Then)
		for _, w := range slices.Backward(c.When) {
			then = b.test(w, then, next)
		}
		next = then
	}
	return next
}

// test goes on at yes if the condition holds.
func (b *builder) test(c Cond, yes, no int) int {
	for _, v := range slices.Backward(c.Values) {
		no = b.jump(unix.BPF_JEQ, v, yes, no)
	}
	if c.Mask != whole {
		b.put(unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.Mask})
	}
	return b.load(offArgs + 8*uint32(c.Arg))
}
