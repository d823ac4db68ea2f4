package seccomp

import (
	"golang.org/x/sys/unix"
)

const (
	setid      = unix.S_ISUID | unix.S_ISGID
	tmpfileBit = 0x400000 // __O_TMPFILE of asm-generic/fcntl.h; O_TMPFILE has O_DIRECTORY besides
)

// anySetid are the values of a mode under the mask setid that have a bit.
func anySetid() []uint32 { return []uint32{unix.S_ISUID, unix.S_ISGID, setid} }

// setidRules refuses set-user-ID and set-group-ID bits for files.
//
// A box may be shown a folder of the host to write to. What a program makes
// there belongs to the folder's owner, so with such a bit it would be that
// owner's program, for anybody on the host to start; that the box itself has it
// mounted nosuid does not matter to them. mkdir(2) takes no such bits, and a
// file is not moved or linked from one mount to another.
func setidRules() []Rule {
	const why = "a program of the owner of a host folder"
	mode := func(name string, amd64, arm64, arg int) Rule {
		return Rule{Name: name, AMD64: amd64, ARM64: arm64, Why: why, Else: Allow, Clauses: []Clause{
			{When: []Cond{{arg, setid, anySetid()}}, Then: eperm},
		}}
	}
	// A mode means nothing if the call makes no file.
	open := func(name string, amd64, arm64, flags int) Rule {
		return Rule{Name: name, AMD64: amd64, ARM64: arm64, Why: why, Else: Allow, Clauses: []Clause{
			{When: []Cond{{flags, unix.O_CREAT, []uint32{unix.O_CREAT}}, {flags + 1, setid, anySetid()}}, Then: eperm},
			{When: []Cond{{flags, tmpfileBit, []uint32{tmpfileBit}}, {flags + 1, setid, anySetid()}}, Then: eperm},
		}}
	}
	return []Rule{
		open("open", 2, -1, 1), open("openat", 257, 56, 2),
		mode("creat", 85, -1, 1), mode("mknod", 133, -1, 1), mode("mknodat", 259, 33, 2),
		mode("chmod", 90, -1, 1), mode("fchmod", 91, 52, 1), mode("fchmodat", 268, 53, 2), mode("fchmodat2", 452, 452, 2),
		{Name: "openat2", AMD64: 437, ARM64: 437, Else: enosys, Why: "its mode is in memory, where a filter cannot look; callers fall back to openat"},
	}
}

// CompileSetid makes the program that is installed besides [Compile]'s in a box
// that can write to a folder of the host: of two filters the stricter answer
// counts. It looks at no other call.
func CompileSetid(goarch string) (Program, error) {
	var calls []segment
	for _, r := range setidRules() {
		calls = addCall(calls, goarch, r.AMD64, r.ARM64, segment{rule: &r})
	}
	return assemble(goarch, cover(calls, Allow), Allow)
}
