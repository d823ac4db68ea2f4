// Package confine is what a process does to itself right before it becomes a
// program that nobody trusts.
//
// The walls of a box are made by others: namespaces, a root of its own,
// control groups. What is left on the inside of those walls is what a process
// inherits: capabilities, keyrings, open descriptors, limits, and the whole
// width of the kernel's interface. [Apply] takes these away, in an order in
// which no step needs what an earlier one took, asks the kernel after each step
// what is now in force, and fails if that is not what was wanted.
//
// # Threads
//
// Linux keeps credentials, Landlock domains and filters by thread, and execve
// makes the calling thread the only one. So all of this is done to one thread,
// which is locked to its goroutine for good, by a process that exists for this
// purpose only. See credentials(7), landlock(7), seccomp(2).
//
// # One domain per box
//
// A Landlock domain with scopes keeps its members from signalling anybody
// outside it. Two programs that each made a domain of their own could not
// signal each other, though they are in one box: a shell could not end the
// server that an earlier command has started. A long-lived box has its programs
// started by one locked thread that entered a [Domain] once; they inherit it,
// and Options.Domain stays nil. The same thread gives the box one session
// keyring; a keyring for each program would soon meet the quota, which is 200
// keys for a user.
//
// # Libraries
//
// github.com/landlock-lsm/go-landlock was looked at (v0.11.2, light, no cgo)
// and not taken: it restricts all threads of the calling process, each in a
// domain of its own until ABI 8, and its way with old kernels, BestEffort, does
// less without saying what. Here one thread is restricted, and what is missing
// must be said. That is three system calls; golang.org/x/sys has their types.
package confine

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host/seccomp"
)

// Options says how a process confines itself. It survives encoding/json.
type Options struct {
	// Domain is entered if it is not nil. Nil is for a process whose parent has
	// entered one for it.
	Domain *Domain
	// Limits are upper bounds by resource (unix.RLIMIT_NOFILE and so on), soft
	// and hard, in the resource's unit. A limit that is lower already stays.
	// RLIMIT_CORE is 0 unless named here. Name RLIMIT_NOFILE: the Go runtime
	// has raised the soft limit, and it would stay raised.
	Limits map[int]uint64
	// Umask is the mask for new files; 0 leaves it as it is.
	Umask int
	// Keep lists the descriptors above 2 that the program gets. All others are
	// closed when it starts.
	Keep []int
}

// Applied is what the kernel said after the steps, for the record of a box.
type Applied struct {
	Weak        []string       // what this kernel or user could not give, in words
	Keyring     int            // serial number of the new session keyring; 0 without Domain
	Landlock    Landlock       // zero without Domain
	Descriptors []int          // open in the program
	Caps        Caps           // all zero, but Bounding if it could not be emptied
	Securebits  int            // see linux/securebits.h
	NoNewPrivs  bool           // true
	Dumpable    bool           // false; execve resets it, see Apply
	Limits      map[int]uint64 // those in force, of the resources in Options and RLIMIT_CORE
	Umask       int            // 0 if it was left
	Seccomp     int            // 2: filtered
	Filter      int            // number of the filter's instructions
}

// Apply confines the calling thread and, for what belongs to the process
// (limits, mask, descriptors), the process. It locks the goroutine to its
// thread for good. The caller must execute a program next, from the same
// goroutine; after an error it must end.
//
// The steps are: memory closed to others of the same user, until execve opens
// it again; descriptors; keyring and domain; capabilities; limits; filter.
// Address space, data and process limits come last of all, since they bind the
// Go runtime too, whose next allocation or thread might fail. Use [Exec], which
// does nothing between these and the program, if they are tight.
func Apply(o Options) (Applied, error) {
	a, late, err := apply(o)
	if err != nil {
		return a, err
	}
	return a, late.set()
}

func apply(o Options) (Applied, limits, error) {
	runtime.LockOSThread()
	var a Applied
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return a, nil, fmt.Errorf("cannot close memory to others: %w", err)
	}
	var err error
	if a.Descriptors, err = closeOthers(o.Keep); err != nil { // reads /proc, which a domain may close
		return a, nil, err
	}
	if o.Domain != nil {
		e, err := o.Domain.Enter()
		if err != nil {
			return a, nil, err
		}
		a.Keyring, a.Landlock, a.Weak = e.Keyring, e.Landlock, e.Weak
	}
	if err := a.dropRights(); err != nil {
		return a, nil, err
	}
	if o.Umask != 0 {
		unix.Umask(o.Umask)
		if a.Umask = unix.Umask(o.Umask); a.Umask != o.Umask {
			return a, nil, fmt.Errorf("cannot set umask to %#o: it is %#o", o.Umask, a.Umask)
		}
	}
	early, late, err := plan(o.Limits)
	if err != nil {
		return a, nil, err
	}
	if err := early.set(); err != nil {
		return a, nil, err
	}
	a.Limits = map[int]uint64{}
	for _, l := range append(early, late...) {
		a.Limits[l.resource] = l.value
	}
	d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || d == 1 {
		return a, nil, fmt.Errorf("cannot close memory to others: it is open (%d, %v)", d, err)
	}
	program, err := seccomp.Compile(runtime.GOARCH)
	if err != nil {
		return a, nil, err
	}
	if err := seccomp.Install(program, seccomp.CallingThread); err != nil {
		return a, nil, err
	}
	a.Seccomp, a.Filter = unix.SECCOMP_MODE_FILTER, len(program) // Install asked
	return a, late, nil
}
