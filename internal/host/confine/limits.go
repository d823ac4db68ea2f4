package confine

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// limit is a value for both limits of a resource; see getrlimit(2).
type limit struct {
	resource int
	value    uint64
}

type limits []limit

// plan lowers each wanted limit to the hard one in force, which an unprivileged
// process cannot raise, and puts those last that bind the Go runtime.
func plan(wanted map[int]uint64) (early, late limits, err error) {
	all := limits{}
	if _, named := wanted[unix.RLIMIT_CORE]; !named {
		all = append(all, limit{unix.RLIMIT_CORE, 0})
	}
	for r, v := range wanted {
		all = append(all, limit{r, v})
	}
	slices.SortFunc(all, func(a, b limit) int { return a.resource - b.resource })
	for _, l := range all {
		var now unix.Rlimit
		if err := unix.Prlimit(0, l.resource, nil, &now); err != nil {
			return nil, nil, fmt.Errorf("cannot read limit %d: %w", l.resource, err)
		}
		l.value = min(l.value, now.Max)
		switch l.resource {
		case unix.RLIMIT_AS, unix.RLIMIT_DATA, unix.RLIMIT_NPROC:
			late = append(late, l)
		default:
			early = append(early, l)
		}
	}
	return early, late, nil
}

// set sets the limits and reads each back. It allocates nothing unless it
// fails.
func (ls limits) set() error {
	for i := range ls {
		l := &ls[i]
		want := unix.Rlimit{Cur: l.value, Max: l.value}
		var now unix.Rlimit
		if err := unix.Prlimit(0, l.resource, &want, nil); err != nil {
			return fmt.Errorf("cannot set limit %d to %d: %w", l.resource, l.value, err)
		}
		if err := unix.Prlimit(0, l.resource, nil, &now); err != nil || now != want {
			return fmt.Errorf("cannot set limit %d to %d: it is %d, hard %d (%v)", l.resource, l.value, now.Cur, now.Max, err)
		}
	}
	return nil
}
