package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The program against a plain reading of its rules: every number, every
// architecture, and every combination of flags and modes around those that the
// rules name. It fails unless every instruction was executed.
func TestSetidProgramIsItsRules(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		p, err := CompileSetid(goarch)
		if err != nil {
			t.Fatal(err)
		}
		m := load(t, p)
		m.as(goarch, setidRules(), Allow)
		for _, arch := range []uint32{m.arch, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
			for nr := range uint32(1024) {
				for _, high := range []uint32{0, x32, 0xfffffc00} {
					m.check(t, systemCall{nr: nr | high, arch: arch})
				}
			}
		}
		for _, r := range setidRules() {
			if m.number(r) >= 0 {
				arguments(r, func(args [6]uint64) { m.check(t, systemCall{nr: uint32(m.number(r)), arch: m.arch, args: args}) })
			}
		}
		for i, done := range m.covered {
			if !done {
				t.Errorf("%s: instruction %d of %d was never executed", goarch, i, len(m.covered))
			}
		}
		if n := m.goesBothWays(t, p); n < 20 {
			t.Errorf("%s: only %d conditional jumps", goarch, n)
		}
	}
}

// By hand, for the architecture of every number in it: what a reader would
// expect of the rules.
func TestSetidBitsAreRefusedAndNothingElse(t *testing.T) {
	p, err := CompileSetid("amd64")
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, p)
	eperm := Refuse(unix.EPERM)
	for _, c := range []struct {
		nr   uint32
		args [6]uint64
		want Action
	}{
		{unix.SYS_CHMOD, [6]uint64{0, 0o4755}, eperm},
		{unix.SYS_CHMOD, [6]uint64{0, 0o2000 | 1<<32}, eperm},
		{unix.SYS_CHMOD, [6]uint64{0, 0o1777}, Allow},
		{unix.SYS_FCHMOD, [6]uint64{0, 0o6755}, eperm},
		{unix.SYS_FCHMODAT, [6]uint64{0, 0o6755, 0o755}, Allow},
		{unix.SYS_FCHMODAT, [6]uint64{0, 0, 0o2755}, eperm},
		{unix.SYS_FCHMODAT2, [6]uint64{0, 0, 0o4000}, eperm},
		{unix.SYS_OPEN, [6]uint64{0, unix.O_RDWR | unix.O_CREAT, 0o4755}, eperm},
		{unix.SYS_OPEN, [6]uint64{0, unix.O_RDWR, 0o4755}, Allow},
		{unix.SYS_OPENAT, [6]uint64{0, 0, unix.O_TMPFILE | unix.O_RDWR, 0o2755}, eperm},
		{unix.SYS_OPENAT, [6]uint64{0, 0, unix.O_DIRECTORY, 0o2755}, Allow},
		{unix.SYS_CREAT, [6]uint64{0, 0o4700}, eperm},
		{unix.SYS_MKNOD, [6]uint64{0, unix.S_IFREG | 0o4755}, eperm},
		{unix.SYS_MKNODAT, [6]uint64{0, 0, unix.S_IFIFO | 0o600}, Allow},
		{unix.SYS_OPENAT2, [6]uint64{}, Refuse(unix.ENOSYS)},
		{unix.SYS_MKDIR, [6]uint64{0, 0o6755}, Allow},
		{unix.SYS_MOUNT, [6]uint64{}, Allow}, // the other program's matter
	} {
		if got, _ := m.run(t, systemCall{nr: c.nr, arch: unix.AUDIT_ARCH_X86_64, args: c.args}); got != c.want {
			t.Errorf("call %d, arguments %#o: %v, want %v", c.nr, c.args, got, c.want)
		}
	}
}
