package confine

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The three calls of Landlock; see landlock_create_ruleset(2),
// landlock_add_rule(2), landlock_restrict_self(2).

func landlockABI() (int, error) {
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0, e
	}
	return int(v), nil
}

// createRuleset returns a descriptor. The kernel takes a structure that is
// longer than the one it knows if the rest is zero.
func createRuleset(attr unix.LandlockRulesetAttr) (int, error) {
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// addRule adds a rule for a path. The kernel's structure is packed; Go's has
// four more bytes behind it, which the kernel does not read.
func addRule(set int, attr unix.LandlockPathBeneathAttr) error {
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

func restrictSelf(set int, flags uintptr) error {
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), flags, 0); e != 0 {
		return e
	}
	return nil
}
