package seccomp

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/bpf"
)

// systemCall is what a filter sees of one: struct seccomp_data.
type systemCall struct {
	nr, arch uint32
	args     [6]uint64
}

func (c systemCall) String() string {
	return fmt.Sprintf("call %d (%#x) of architecture %#x, arguments %#x", int32(c.nr), c.nr, c.arch, c.args)
}

func (c systemCall) bytes() []byte {
	b := make([]byte, 0, 64)
	b = binary.LittleEndian.AppendUint32(b, c.nr)
	b = binary.LittleEndian.AppendUint32(b, c.arch)
	b = binary.LittleEndian.AppendUint64(b, 0) // the instruction pointer
	for _, a := range c.args {
		b = binary.LittleEndian.AppendUint64(b, a)
	}
	return b
}

// machine is a compiled program in gVisor's interpreter.
type machine struct {
	goarch  string
	arch    uint32
	program bpf.Program
	covered []bool
	table   []Rule
	rest    Action // for a number that the table does not name
}

func machineFor(t testing.TB, goarch string) *machine {
	t.Helper()
	p, err := Compile(goarch)
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, p)
	m.as(goarch, Table(), Refuse(unix.ENOSYS))
	return m
}

// as says what a program is to be compared with.
func (m *machine) as(goarch string, table []Rule, rest Action) {
	m.goarch, m.arch, m.table, m.rest = goarch, unix.AUDIT_ARCH_X86_64, table, rest
	if goarch == "arm64" {
		m.arch = unix.AUDIT_ARCH_AARCH64
	}
}

func load(t testing.TB, p Program) *machine {
	t.Helper()
	ins := make([]bpf.Instruction, len(p))
	for i, f := range p {
		ins[i] = bpf.RawInstruction(f.Code, f.Jt, f.Jf, f.K)
	}
	program, err := bpf.Compile(ins, false)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{program: program, covered: make([]bool, len(p))}
}

// run returns what the program says, and which of its input's 64 bytes it read.
func (m *machine) run(t testing.TB, c systemCall) (Action, []bool) {
	t.Helper()
	r, err := bpf.InstrumentedExec[bpf.LittleEndian](m.program, c.bytes())
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	for i, done := range r.Coverage {
		m.covered[i] = m.covered[i] || done
	}
	return Action(r.ReturnValue), r.InputAccessed
}

// check compares program and model.
func (m *machine) check(t testing.TB, c systemCall) {
	t.Helper()
	if got, _ := m.run(t, c); got != m.model(c) {
		t.Errorf("%s: %v: program says %v, table says %v", m.goarch, c, got, m.model(c))
	}
}

// model reads the table as a person would.
func (m *machine) model(c systemCall) Action {
	if c.arch != m.arch {
		return Kill
	}
	if m.goarch == "amd64" && c.nr&0x40000000 != 0 && c.nr != 0xffffffff {
		return Kill
	}
	for _, r := range m.table {
		if nr := m.number(r); nr >= 0 && uint32(nr) == c.nr {
			for _, clause := range r.Clauses {
				if holds(clause, c) {
					return clause.Then
				}
			}
			return r.Else
		}
	}
	return m.rest
}

func (m *machine) number(r Rule) int {
	if m.goarch == "arm64" {
		return r.ARM64
	}
	return r.AMD64
}

func holds(clause Clause, c systemCall) bool {
	for _, w := range clause.When {
		found := false
		for _, v := range w.Values {
			found = found || uint32(c.args[w.Arg]&0xffffffff)&w.Mask == v
		}
		if !found {
			return false
		}
	}
	return true
}
