package confine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Scope puts the calling thread, and with it every process that it starts, into
// a new Landlock domain that has no rule but this: nobody in it can signal,
// trace or connect by an abstract socket to anybody outside, the rest of this
// process included. It sets no_new_privs and locks nothing: the caller keeps the
// goroutine on its thread. Before version 6 of Landlock (Linux 6.12), and in
// gVisor, the error is [errors.ErrUnsupported]. See landlock(7).
func Scope() error {
	abi, err := landlockABI()
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || err == nil && abi < 6 {
		return fmt.Errorf("cannot enter Landlock domain: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("cannot ask for Landlock: %w", err)
	}
	if err := setNoNewPrivs(); err != nil {
		return err
	}
	set, err := createRuleset(unix.LandlockRulesetAttr{
		Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL,
	})
	if err != nil {
		return fmt.Errorf("cannot make Landlock ruleset: %w", err)
	}
	defer unix.Close(set)
	if err := restrictSelf(set, 0); err != nil {
		return fmt.Errorf("cannot enter Landlock domain: %w", err)
	}
	return nil
}
