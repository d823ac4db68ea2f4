package seccomp

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func architectures(t *testing.T, f func(t *testing.T, m *machine)) {
	for _, goarch := range []string{"amd64", "arm64"} {
		t.Run(goarch, func(t *testing.T) { f(t, machineFor(t, goarch)) })
	}
}

// TestProgramIsTheTable runs the compiled program over every number, every
// foreign architecture and, where arguments decide, every combination of
// arguments around the values in the table. It fails unless every instruction
// was executed: one that nothing reaches is one that nothing tests.
func TestProgramIsTheTable(t *testing.T) {
	architectures(t, func(t *testing.T, m *machine) {
		archs := []uint32{m.arch, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_AARCH64 ^ 0x40000000, 0}
		for _, arch := range archs {
			for nr := range uint32(1024) {
				for _, high := range []uint32{0, x32, 0x80000000, 0xfffffc00} {
					m.check(t, systemCall{nr: nr | high, arch: arch})
				}
			}
		}
		for _, r := range Table() {
			if m.number(r) >= 0 {
				arguments(r, func(args [6]uint64) {
					m.check(t, systemCall{nr: uint32(m.number(r)), arch: m.arch, args: args})
				})
			}
		}
		for i, done := range m.covered {
			if !done {
				t.Errorf("instruction %d of %d was never executed", i, len(m.covered))
			}
		}
	})
}

// arguments calls f with each combination of the values that a rule compares
// with and some near them, with the upper half of the registers clear and set.
func arguments(r Rule, f func([6]uint64)) {
	var values [6][]uint32
	for _, c := range r.Clauses {
		for _, w := range c.When {
			for _, v := range w.Values {
				values[w.Arg] = append(values[w.Arg], v, v+1, v|^w.Mask, ^v)
			}
			if w.Mask != whole && len(c.When) == 1 {
				for bit := range 32 {
					values[w.Arg] = append(values[w.Arg], 1<<bit)
				}
			}
		}
	}
	var each func(arg int, args [6]uint64)
	each = func(arg int, args [6]uint64) {
		if arg == len(args) {
			f(args)
			for i := range args {
				args[i] |= 0x80000001 << 32
			}
			f(args)
			return
		}
		slices.Sort(values[arg])
		if values[arg] = slices.Compact(values[arg]); len(values[arg]) == 0 {
			values[arg] = []uint32{0}
		}
		for _, v := range values[arg] {
			args[arg] = uint64(v)
			each(arg+1, args)
		}
	}
	each(0, [6]uint64{})
}

// TestPlainRulesLookAtNoArgument: the kernel remembers a call that is allowed
// whatever its arguments and does not run the filter for it again (since 5.11),
// which it finds out by seeing that the program reads nothing else.
func TestPlainRulesLookAtNoArgument(t *testing.T) {
	architectures(t, func(t *testing.T, m *machine) {
		for _, r := range Table() {
			if m.number(r) < 0 {
				continue
			}
			_, read := m.run(t, systemCall{nr: uint32(m.number(r)), arch: m.arch})
			if got := slices.Contains(read[8:], true); got != (len(r.Clauses) > 0) {
				t.Errorf("%s with %d clauses: arguments read: %v", r.Name, len(r.Clauses), got)
			}
		}
	})
}

func TestProgramIsTheTableForAnyCall(t *testing.T) {
	architectures(t, func(t *testing.T, m *machine) {
		rapid.Check(t, func(rt *rapid.T) {
			c := systemCall{arch: m.arch, nr: rapid.Uint32().Draw(rt, "number")}
			if rapid.Bool().Draw(rt, "known") {
				r := rapid.SampledFrom(Table()).Draw(rt, "rule")
				c.nr = uint32(m.number(r))
			}
			if rapid.Uint8Range(0, 9).Draw(rt, "foreign") == 0 {
				c.arch = rapid.Uint32().Draw(rt, "architecture")
			}
			for i := range c.args {
				c.args[i] = rapid.Uint64().Draw(rt, "argument")
			}
			m.check(t, c)
		})
	})
}

// FuzzProgram begins with an input for every way through both programs, so the
// fuzzer has nothing to find before it has all branches; go test runs these.
func FuzzProgram(f *testing.F) {
	for _, goarch := range []string{"amd64", "arm64"} {
		p, err := Compile(goarch)
		if err != nil {
			f.Fatal(err)
		}
		for _, way := range force(f, p) {
			c := way.input
			f.Add(c.nr, c.arch, c.args[0], c.args[1], c.args[2])
		}
	}
	f.Add(uint32(16), uint32(unix.AUDIT_ARCH_X86_64), uint64(0), uint64(1<<32|unix.TIOCSTI), uint64(0))
	f.Add(uint32(198), uint32(unix.AUDIT_ARCH_AARCH64), uint64(unix.AF_INET), uint64(unix.SOCK_STREAM), uint64(262))
	f.Add(uint32(0xffffffff), uint32(unix.AUDIT_ARCH_I386), uint64(0), uint64(0), uint64(0))
	machines := []*machine{machineFor(f, "amd64"), machineFor(f, "arm64")}
	f.Fuzz(func(t *testing.T, nr, arch uint32, a, b, c uint64) {
		for _, m := range machines {
			m.check(t, systemCall{nr: nr, arch: arch, args: [6]uint64{a, b, c}})
			m.check(t, systemCall{nr: nr, arch: m.arch, args: [6]uint64{a, b, c}})
		}
	})
}

// TestJumpsReachAnyDistance places the two targets of a jump around the edge of
// what its 8 bits can reach. The table of today is smaller than that.
func TestJumpsReachAnyDistance(t *testing.T) {
	const first, second = Action(unix.SECCOMP_RET_ERRNO | 1), Action(unix.SECCOMP_RET_ERRNO | 2)
	ret := func(a Action) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(a)} }
	for far := 250; far < 260; far++ {
		for near := 0; near < far; near++ {
			if near == 3 {
				near = 248
			}
			for _, swap := range []bool{false, true} {
				var b builder
				x := b.put(ret(first))
				for b.distance(x) < far-near {
					b.put(ret(Kill))
				}
				y := b.put(ret(second))
				for b.distance(y) < near {
					b.put(ret(Kill))
				}
				yes, no := first, second
				if swap {
					x, y, yes, no = y, x, no, yes
				}
				b.jump(unix.BPF_JEQ, 7, x, y)
				b.load(offNumber)
				slices.Reverse(b.rev)
				m := load(t, b.rev)
				got7, _ := m.run(t, systemCall{nr: 7})
				got8, _ := m.run(t, systemCall{nr: 8})
				if got7 != yes || got8 != no {
					t.Fatalf("targets %d and %d away, swapped %v: went to %v and %v", far, near, swap, got7, got8)
				}
			}
		}
	}
}

func TestUnknownArchitectureIsAnError(t *testing.T) {
	for _, goarch := range []string{"", "386", "arm", "riscv64"} {
		if p, err := Compile(goarch); err == nil {
			t.Errorf("%q: a program of %d instructions", goarch, len(p))
		}
	}
}

func TestProgramIsTheSameEachTime(t *testing.T) {
	architectures(t, func(t *testing.T, m *machine) {
		a, _ := Compile(m.goarch)
		b, _ := Compile(m.goarch)
		if !slices.Equal(a, b) {
			t.Error("two compilations differ")
		}
		if len(a) > unix.BPF_MAXINSNS {
			t.Errorf("%d instructions; the kernel takes %d", len(a), unix.BPF_MAXINSNS)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile("amd64"); err != nil {
			b.Fatal(err)
		}
	}
}
