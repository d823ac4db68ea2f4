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
// server that an earlier command has started. So a box that lives has its
// programs started by one thread, which [Thread] has confined; they inherit
// domain, keyring, rights and filter, and starting one costs nothing more. (A
// keyring for each would soon meet the quota, too: 200 keys for a user.) What
// belongs to processes and not to threads, descriptors and limits, is left to
// the process: its own are inherited, or each program's first step is an
// [Exec] with Options.Confined.
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
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/internal/host/seccomp"
)

// Options says how a process confines itself. It survives encoding/json.
type Options struct {
	// Domain is entered if it is not nil.
	Domain *Domain
	// Confined is for a process that was started by a thread that [Thread] has
	// confined: its rights and its filter are read back, not made again.
	// Domain must be nil.
	Confined bool
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
	Descriptors []int          // open in the program; nil from Thread, like the following of the process
	Limits      map[int]uint64 // those in force, of the resources in Options and RLIMIT_CORE
	Umask       int            // 0 if it was left
	Caps        Caps           // all zero, but Bounding if it could not be emptied
	Securebits  int            // see linux/securebits.h
	NoNewPrivs  bool           // true
	Seccomp     int            // 2: filtered
}

// Apply confines the calling thread and, for what belongs to the process
// (limits, mask, descriptors), the process. It locks the goroutine to its
// thread for good. The caller must execute a program next, from the same
// goroutine; after an error it must end.
//
// The steps are: memory closed to others of the same user, until execve opens
// it again; descriptors; mask; keyring and domain; capabilities; filter; limits.
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
	if err := closeMemory(); err != nil {
		return a, nil, err
	}
	var err error
	if a.Descriptors, err = closeOthers(o.Keep); err != nil { // reads /proc, which a domain may close
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
	if err := a.confine(o); err != nil {
		return a, nil, err
	}
	if err := early.set(); err != nil {
		return a, nil, err
	}
	a.Limits = map[int]uint64{}
	for _, l := range slices.Concat(early, late) {
		a.Limits[l.resource] = l.value
	}
	return a, late, nil
}

// Thread confines the calling thread, and with it every process that it starts,
// in all that is kept by thread: session keyring, domain, capabilities, secure
// bits, no_new_privs and filter. It locks the goroutine to the thread for good;
// the rest of the process keeps its rights. See [DropRights] for those.
func Thread(d Domain) (Applied, error) {
	runtime.LockOSThread()
	var a Applied
	return a, a.confine(Options{Domain: &d})
}

func (a *Applied) confine(o Options) error {
	switch {
	case o.Confined && o.Domain != nil:
		return errors.New("cannot enter a domain in a confined process: no option may be both")
	case o.Confined:
		if err := a.readRights(); err != nil {
			return err
		}
		return a.readFilter()
	case o.Domain != nil:
		if err := o.Domain.enter(a); err != nil {
			return err
		}
	}
	if err := a.dropRights(); err != nil {
		return err
	}
	compile := []func(string) (seccomp.Program, error){seccomp.Compile}
	if o.Domain != nil && o.Domain.NoSetid {
		compile = append(compile, seccomp.CompileSetid)
	}
	for _, c := range compile {
		program, err := c(runtime.GOARCH)
		if err != nil {
			return err
		}
		if err := seccomp.Install(program, seccomp.CallingThread); err != nil {
			return err
		}
	}
	return a.readFilter()
}

func (a *Applied) readFilter() error {
	var err error
	if a.Seccomp, err = unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || a.Seccomp != unix.SECCOMP_MODE_FILTER {
		return fmt.Errorf("cannot go on without a filter: seccomp mode is %d (%v)", a.Seccomp, err)
	}
	return nil
}

// closeMemory keeps other processes of the same user from the memory and the
// descriptors of this one, as far as the kernel can: see PR_SET_DUMPABLE in
// prctl(2). execve opens them again.
func closeMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot close memory to others: %w", err)
	}
	if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || d != 0 {
		return fmt.Errorf("cannot close memory to others: it is open (%d, %v)", d, err)
	}
	return nil
}
