package confine

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Domain is what the programs of one box may reach together: files by path, and
// of processes and abstract sockets only each other's. Paths are resolved once,
// when it is entered, and name what they led to then; each must exist. What is
// below a folder is meant with it. A file may be named, too.
//
// TCP ports have no rule: the network namespace is the wall, and loopback must
// work.
type Domain struct {
	ReadOnly []string // read, list and execute
	Writable []string // everything
	// Devices are read, written and controlled (ioctl), but not made: /dev.
	Devices []string
	// NoSetid refuses set-user-ID and set-group-ID bits on files: for a domain
	// that can write to a folder of the host.
	NoSetid bool
}

// Landlock says what Landlock keeps; see landlock(7) and linux/landlock.h.
type Landlock struct {
	ABI    int    // version of the kernel's interface, 0 if it has none
	Files  uint64 // LANDLOCK_ACCESS_FS rights that need a rule
	Scoped uint64 // LANDLOCK_SCOPE bits
	Rules  int
	// Probed is true if something that was allowed before is refused now.
	// There is no way to ask for a domain.
	Probed bool
}

// enter gives the calling thread a new session keyring and a new domain. A
// kernel without Landlock, or with an old one, is not an error: Weak says what
// is missing, and the caller decides.
func (d Domain) enter(a *Applied) error {
	var err error
	if a.Keyring, err = newKeyring(); err != nil {
		return err
	}
	if err := setNoNewPrivs(); err != nil { // Landlock wants it
		return err
	}
	return d.landlock(a)
}

// landlock gives the calling thread the new domain.
func (d Domain) landlock(a *Applied) error {
	abi, err := landlockABI()
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		a.Weak = append(a.Weak, "Landlock is not in this kernel: files, abstract sockets and signals are kept by namespaces alone")
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot ask for Landlock: %w", err)
	}
	before := d.probe()
	if a.Landlock, err = d.restrict(abi); err != nil {
		return err
	}
	if a.Landlock.Probed, err = before.compare(d.probe(), a.Landlock); err != nil {
		return err
	}
	if abi < 6 {
		a.Weak = append(a.Weak, fmt.Sprintf("Landlock of this kernel (version %d, not 6) does not keep abstract sockets and signals: namespaces alone do", abi))
	}
	return nil
}

// newKeyring replaces the session keyring, which passes through fork, execve
// and every namespace, by an empty one. Keys of the old one can no longer be
// found. See keyrings(7) and session-keyring(7).
func newKeyring() (int, error) {
	before, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	if err != nil && !errors.Is(err, unix.ENOKEY) {
		return 0, fmt.Errorf("cannot find session keyring: %w", err)
	}
	// A null pointer for the name: an empty name would be one that all share.
	id, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot make session keyring: %w", err)
	}
	now, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	if err != nil || now != id || now == before {
		return 0, fmt.Errorf("cannot make session keyring: %d was made, %d is in force, %d was before (%v)", id, now, before, err)
	}
	return id, nil
}

func setNoNewPrivs() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot set no_new_privs: %w", err)
	}
	if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || v != 1 {
		return fmt.Errorf("cannot set no_new_privs: it is %d (%v)", v, err)
	}
	return nil
}

// Rights that a rule may give, by the kind of rule.
const (
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV // all that make sense for a file
	readRights   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	deviceRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	allRights = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV<<1 - 1
)

// knownRights are the file rights that a version knows.
func knownRights(abi int) uint64 {
	switch {
	case abi >= 5:
		return allRights
	case abi >= 3:
		return unix.LANDLOCK_ACCESS_FS_TRUNCATE<<1 - 1
	case abi == 2:
		return unix.LANDLOCK_ACCESS_FS_REFER<<1 - 1
	default:
		return unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
	}
}

func (d Domain) restrict(abi int) (Landlock, error) {
	l := Landlock{ABI: abi, Files: knownRights(abi)}
	if abi >= 6 {
		l.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	set, err := createRuleset(unix.LandlockRulesetAttr{Handled_access_fs: l.Files, Scoped: l.Scoped})
	if err != nil {
		return l, fmt.Errorf("cannot make Landlock ruleset: %w", err)
	}
	defer unix.Close(set)
	for _, list := range []struct {
		paths  []string
		rights uint64
	}{{d.ReadOnly, readRights}, {d.Writable, allRights}, {d.Devices, deviceRights}} {
		for _, p := range list.paths {
			if err := allow(set, p, list.rights&l.Files); err != nil {
				return l, err
			}
			l.Rules++
		}
	}
	var flags uintptr
	if abi >= 7 {
		// A box that makes domains of its own must not fill the host's log.
		flags = unix.LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF
	}
	if err := restrictSelf(set, flags); err != nil {
		return l, fmt.Errorf("cannot enter Landlock domain: %w", err)
	}
	return l, nil
}

func allow(set int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s for a rule: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	if err := addRule(set, unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}); err != nil {
		return fmt.Errorf("cannot add rule for %s: %w", path, err)
	}
	return nil
}

// probe is whether two harmless things work that a domain forbids: to list the
// root folder and to ask whether the parent process could be signalled.
type probe struct{ list, signal bool }

func (d Domain) probe() probe {
	var p probe
	if !slices.Contains(slices.Concat(d.ReadOnly, d.Writable, d.Devices), "/") {
		if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			p.list = true
		}
	}
	if parent := unix.Getppid(); parent > 0 { // 0 is a parent in an outer PID namespace
		p.signal = unix.Kill(parent, 0) == nil
	}
	return p
}

func (before probe) compare(after probe, l Landlock) (changed bool, err error) {
	if after.list {
		return false, errors.New("cannot keep files: the root folder can be listed inside the domain")
	}
	if after.signal && l.Scoped&unix.LANDLOCK_SCOPE_SIGNAL != 0 {
		return false, errors.New("cannot keep signals: the parent can be signalled from inside the domain")
	}
	return before != after, nil
}
