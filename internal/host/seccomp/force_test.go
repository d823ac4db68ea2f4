package seccomp

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A path is one way through a program: the input that takes it, the
// instructions on it, and how each of its jumps went.
type path struct {
	input        systemCall
	instructions []int
	jumps        map[jump]bool
}

// jump is one outcome of a conditional jump.
type jump struct {
	at    int
	taken bool
}

// limit is what a jump on a path demands of a word of the input.
type limit struct {
	mask, k uint32
	op      uint16
	holds   bool
}

func (l limit) fits(word uint32) bool {
	word &= l.mask
	switch l.op {
	case unix.BPF_JEQ:
		return (word == l.k) == l.holds
	case unix.BPF_JGE:
		return (word >= l.k) == l.holds
	default: // JSET
		return (word&l.k != 0) == l.holds
	}
}

// walker follows a program both ways at each jump, with what the jumps before
// demand of each word of the input. A way that no input can take is not gone.
type walker struct {
	t       testing.TB
	program Program
	limits  map[uint32][]limit // by the word's offset
	trail   []int
	jumps   []jump
	out     []path
}

// force returns an input for every way through the program.
func force(t testing.TB, p Program) []path {
	t.Helper()
	w := walker{t: t, program: p, limits: map[uint32][]limit{}}
	w.walk(0, offNumber, 0xffffffff)
	return w.out
}

func (w *walker) walk(at int, offset, mask uint32) {
	w.t.Helper()
	w.trail = append(w.trail, at)
	defer func() { w.trail = w.trail[:len(w.trail)-1] }()
	switch f := w.program[at]; f.Code {
	case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
		w.walk(at+1, f.K, 0xffffffff)
	case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
		w.walk(at+1, offset, mask&f.K)
	case unix.BPF_JMP | unix.BPF_JA:
		w.walk(at+1+int(f.K), offset, mask)
	case unix.BPF_RET | unix.BPF_K:
		w.keep()
	case unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, unix.BPF_JMP | unix.BPF_K | unix.BPF_JGE, unix.BPF_JMP | unix.BPF_K | unix.BPF_JSET:
		for _, taken := range []bool{true, false} {
			before := w.limits[offset]
			w.limits[offset] = append(slices.Clone(before), limit{mask, f.K, f.Code &^ (unix.BPF_JMP | unix.BPF_K), taken})
			if _, ok := solve(w.limits[offset]); ok {
				next := at + 1 + int(f.Jf)
				if taken {
					next = at + 1 + int(f.Jt)
				}
				w.jumps = append(w.jumps, jump{at, taken})
				w.walk(next, offset, mask)
				w.jumps = w.jumps[:len(w.jumps)-1]
			}
			w.limits[offset] = before
		}
	default:
		w.t.Fatalf("instruction %d has code %#x, which this walker does not know", at, f.Code)
	}
}

// keep makes the input of the way that has come to its end.
func (w *walker) keep() {
	p := path{instructions: slices.Clone(w.trail), jumps: map[jump]bool{}}
	for _, j := range w.jumps {
		p.jumps[j] = true
	}
	for offset, limits := range w.limits {
		word, ok := solve(limits)
		if !ok {
			w.t.Fatalf("no word fits %+v, which fitted before", limits)
		}
		switch {
		case offset == offNumber:
			p.input.nr = word
		case offset == offArch:
			p.input.arch = word
		case offset >= offArgs && (offset-offArgs)%8 == 0:
			p.input.args[(offset-offArgs)/8] = uint64(word)
		default:
			w.t.Fatalf("the program reads at %d, which is no lower half of an argument", offset)
		}
	}
	w.out = append(w.out, p)
}

// solve finds a word within limits, if there is one near any of their values:
// each limit is an edge, a single value or a bit, so if any word fits, one does
// that is at an edge, beside a value, or has the bits set.
func solve(limits []limit) (uint32, bool) {
	tries := []uint32{0, 0xffffffff}
	for _, l := range limits {
		for _, k := range []uint32{l.k, l.k + 1, l.k - 1, ^l.k, l.k | ^l.mask} {
			tries = append(tries, k, k|x32, k&^x32)
		}
	}
	for bit := range 32 {
		tries = append(tries, 1<<bit)
	}
	for _, word := range tries {
		if !slices.ContainsFunc(limits, func(l limit) bool { return !l.fits(word) }) {
			return word, true
		}
	}
	return 0, false
}

// TestEveryJumpGoesBothWays forces an input through every way of the compiled
// program, in an interpreter, and compares the outcome with the table read as a
// person would. It fails unless every instruction was executed and every
// conditional jump both taken and not taken: one that always goes the same way
// tests nothing, in the filter as well as here.
func TestEveryJumpGoesBothWays(t *testing.T) {
	architectures(t, func(t *testing.T, m *machine) {
		p, err := Compile(m.goarch)
		if err != nil {
			t.Fatal(err)
		}
		if n := m.goesBothWays(t, p); n < 100 {
			t.Errorf("only %d conditional jumps: the walker is stale", n)
		}
	})
}

// goesBothWays is that test for one program, and returns the number of its
// conditional jumps.
func (m *machine) goesBothWays(t *testing.T, p Program) int {
	t.Helper()
	gone := map[jump]bool{}
	paths := force(t, p)
	for _, way := range paths {
		clear(m.covered)
		m.check(t, way.input)
		for i, done := range m.covered {
			if done != slices.Contains(way.instructions, i) {
				t.Fatalf("%v: instruction %d executed: %v, foreseen: %v", way.input, i, done, !done)
			}
		}
		upper := way.input
		for i := range upper.args {
			upper.args[i] |= 0xdeadbeef << 32
		}
		m.check(t, upper)
		for j := range way.jumps {
			gone[j] = true
		}
	}
	executed := map[int]bool{}
	for _, way := range paths {
		for _, i := range way.instructions {
			executed[i] = true
		}
	}
	conditional := 0
	for i, f := range p {
		if !executed[i] {
			t.Errorf("instruction %d of %d cannot be reached", i, len(p))
		}
		if f.Code&7 != unix.BPF_JMP || f.Code == unix.BPF_JMP|unix.BPF_JA {
			continue
		}
		conditional++
		for _, taken := range []bool{true, false} {
			if !gone[jump{i, taken}] {
				t.Errorf("jump %d of %+v never goes the way %v", i, f, taken)
			}
		}
	}
	t.Logf("%d ways, %d instructions, %d conditional jumps both ways", len(paths), len(executed), conditional)
	return conditional
}
