package seccomp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// attack is a system call that a box must not get through to the kernel with.
// Its arguments are wrong on purpose, or harmless, so that the same call made
// without a filter changes nothing: it fails in another way, which shows that
// the kernel looked at it, or succeeds.
type attack struct {
	what string
	call string // its name in the table
	args [4]uint64
	want unix.Errno
	// root: without a filter, too, an ordinary user hears want.
	root bool
}

const (
	none    = ^uint64(0) // -1: no such process or descriptor
	nowhere = uint64(1)  // an address that cannot be read
)

func attacks() []attack {
	list := []attack{
		{"H01 io_uring_setup", "io_uring_setup", [4]uint64{1, 0}, unix.ENOSYS, false},
		{"H01 io_uring_enter", "io_uring_enter", [4]uint64{none}, unix.ENOSYS, false},
		{"H01 io_uring_register", "io_uring_register", [4]uint64{none, 99}, unix.ENOSYS, false},
		{"H02 bpf", "bpf", [4]uint64{0, 0, 0}, unix.EPERM, true},
		{"H03 userfaultfd", "userfaultfd", [4]uint64{1}, unix.EPERM, false},
		{"H04 perf_event_open", "perf_event_open", [4]uint64{0, 0, none, none}, unix.EPERM, false},
		{"H05 add_key", "add_key", [4]uint64{nowhere, nowhere}, unix.EPERM, false},
		{"H05 request_key", "request_key", [4]uint64{nowhere, nowhere}, unix.EPERM, false},
		{"H05 keyctl", "keyctl", [4]uint64{unix.KEYCTL_GET_KEYRING_ID, sessionKeyring, 0}, unix.EPERM, false},
		{"H06 unshare", "unshare", [4]uint64{0}, unix.EPERM, false},
		{"H06 setns", "setns", [4]uint64{none}, unix.EPERM, false},
		{"H06 clone3", "clone3", [4]uint64{0, 0}, unix.ENOSYS, false},
		{"H08 fsopen", "fsopen", [4]uint64{nowhere}, unix.EPERM, true},
		{"H08 fsconfig", "fsconfig", [4]uint64{none, 99}, unix.EPERM, false},
		{"H08 fsmount", "fsmount", [4]uint64{none}, unix.EPERM, true},
		{"H08 fspick", "fspick", [4]uint64{none, nowhere}, unix.EPERM, true},
		{"H08 move_mount", "move_mount", [4]uint64{none, nowhere, none, nowhere}, unix.EPERM, true},
		{"H08 open_tree", "open_tree", [4]uint64{none, nowhere}, unix.EPERM, false},
		{"H08 mount_setattr", "mount_setattr", [4]uint64{none, nowhere, 0, nowhere}, unix.EPERM, true},
		{"H09 mount", "mount", [4]uint64{nowhere, nowhere, nowhere, 0}, unix.EPERM, false},
		{"H09 umount2", "umount2", [4]uint64{nowhere, 0}, unix.EPERM, true},
		{"H09 pivot_root", "pivot_root", [4]uint64{nowhere, nowhere}, unix.EPERM, true},
		{"H09 chroot", "chroot", [4]uint64{nowhere}, unix.EPERM, false},
		{"H10 ptrace", "ptrace", [4]uint64{unix.PTRACE_ATTACH, none}, unix.EPERM, false},
		{"H11 process_vm_readv", "process_vm_readv", [4]uint64{1, 0, 0}, unix.EPERM, false},
		{"H11 process_vm_writev", "process_vm_writev", [4]uint64{1, 0, 0}, unix.EPERM, false},
		{"H11 pidfd_getfd", "pidfd_getfd", [4]uint64{none, 0}, unix.EPERM, false},
		{"H11 kcmp", "kcmp", [4]uint64{none, none}, unix.EPERM, false},
		{"H13 init_module", "init_module", [4]uint64{0, 0, 0}, unix.EPERM, true},
		{"H13 finit_module", "finit_module", [4]uint64{none}, unix.EPERM, true},
		{"H13 delete_module", "delete_module", [4]uint64{nowhere}, unix.EPERM, true},
		{"H14 reboot", "reboot", [4]uint64{0, 0}, unix.EPERM, true},
		{"H14 kexec_load", "kexec_load", [4]uint64{0, 1 << 20}, unix.EPERM, true},
		{"H17 TIOCSTI", "ioctl", [4]uint64{terminal, unix.TIOCSTI, nowhere}, unix.EPERM, false},
		{"H17 TIOCSTI, bit 32 set", "ioctl", [4]uint64{terminal, 1<<32 | unix.TIOCSTI, nowhere}, unix.EPERM, false},
		{"H17 TIOCLINUX", "ioctl", [4]uint64{terminal, 0x541c, nowhere}, unix.EPERM, false},
		{"H17 TIOCSETD", "ioctl", [4]uint64{terminal, unix.TIOCSETD, nowhere}, unix.EPERM, false},
		{"H18 AF_VSOCK", "socket", [4]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EAFNOSUPPORT, false},
		{"H19 AF_ALG", "socket", [4]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, unix.EAFNOSUPPORT, false},
		{"H20 NETLINK_NETFILTER", "socket", [4]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, unix.EAFNOSUPPORT, false},
		{"H21 AF_PACKET", "socket", [4]uint64{unix.AF_PACKET, unix.SOCK_RAW}, unix.EAFNOSUPPORT, false},
		{"H21 AF_XDP", "socket", [4]uint64{unix.AF_XDP, unix.SOCK_RAW}, unix.EAFNOSUPPORT, false},
		{"raw socket", "socket", [4]uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, unix.EPERM, true},
		{"MPTCP", "socket", [4]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, unix.EPROTONOSUPPORT, false},
		{"READ_IMPLIES_EXEC", "personality", [4]uint64{0x400000}, unix.EPERM, false},
		{"seccomp listener", "seccomp", [4]uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, 0}, unix.EINVAL, false},
		{"a file of huge pages", "memfd_create", [4]uint64{nowhere, unix.MFD_HUGETLB}, unix.ENOSYS, false},
		{"huge pages", "mmap", [4]uint64{0, 0, 0, unix.MAP_HUGETLB | unix.MAP_PRIVATE | unix.MAP_ANONYMOUS}, unix.ENOMEM, false},
		{"SO_ATTACH_FILTER", "setsockopt", [4]uint64{none, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, unix.EPERM, false},
		{"TCP_ULP", "setsockopt", [4]uint64{none, unix.SOL_TCP, unix.TCP_ULP}, unix.ENOENT, false},
		{"IPT_SO_SET_REPLACE", "setsockopt", [4]uint64{none, unix.SOL_IP, 64}, unix.EPERM, false},
		{"swapon", "swapon", [4]uint64{nowhere}, unix.EPERM, true},
		{"acct", "acct", [4]uint64{nowhere}, unix.EPERM, true},
		{"sethostname", "sethostname", [4]uint64{nowhere, 1}, unix.EPERM, true},
		{"clock_settime", "clock_settime", [4]uint64{99, 0}, unix.EPERM, false},
		{"adjtimex", "adjtimex", [4]uint64{nowhere}, unix.EPERM, false},
		{"syslog", "syslog", [4]uint64{99}, unix.EPERM, true},
		{"open_by_handle_at", "open_by_handle_at", [4]uint64{none, nowhere}, unix.EPERM, true},
		{"name_to_handle_at", "name_to_handle_at", [4]uint64{none, nowhere}, unix.EOPNOTSUPP, false},
		{"fanotify_init", "fanotify_init", [4]uint64{0xffffffff}, unix.EPERM, true},
		{"vhangup", "vhangup", [4]uint64{}, unix.EPERM, true},
		{"a device", "mknodat", [4]uint64{none, nowhere, unix.S_IFBLK}, unix.EPERM, false},
		{"lsm_list_modules", "lsm_list_modules", [4]uint64{nowhere}, unix.ENOSYS, false},
		{"memfd_secret", "memfd_secret", [4]uint64{0xff}, unix.ENOSYS, false},
	}
	for _, flag := range []uint64{unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET} {
		// A thread that shares no signal handlers is never made.
		list = append(list, attack{fmt.Sprintf("H06 clone with %#x", flag), "clone", [4]uint64{flag | unix.CLONE_THREAD}, unix.EPERM, false})
	}
	return list
}

const (
	terminal       = 100 // the descriptor of the child's controlling terminal
	sessionKeyring = 0xfffffffd
)

// TestAttacksAreRefusedByTheKernel makes each call with and without the filter,
// by root and by an ordinary user.
func TestAttacksAreRefusedByTheKernel(t *testing.T) {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	filteredAlready := err != nil || mode != 0
	for _, uid := range users() {
		free := run{name: "call", filtered: "unfiltered", uid: uid}.answers(t)
		held := run{name: "call", filtered: "this thread", uid: uid}.answers(t)
		root := uid == 0 && os.Geteuid() == 0
		for _, a := range attacks() {
			if got := held[a.what]; got != a.want {
				t.Errorf("uid %d: %s: %v, want %v", uid, a.what, got, a.want)
			}
			control := free[a.what]
			switch {
			case control == unix.ENOSYS || control == unix.EAFNOSUPPORT || control == unix.EPROTONOSUPPORT:
				t.Logf("uid %d: %s: this kernel does not have it", uid, a.what)
			case control == a.want && filteredAlready:
				t.Logf("uid %d: %s: refused by a filter around this test", uid, a.what)
			case control == a.want && (root || !a.root):
				t.Errorf("uid %d: %s: %v without a filter, too: nothing is shown", uid, a.what, control)
			}
		}
	}
}

// TestEveryRefusalIsHeard goes through all calls that the table refuses
// whatever their arguments.
func TestEveryRefusalIsHeard(t *testing.T) {
	for _, uid := range users() {
		held := run{name: "refused", filtered: "all threads", uid: uid}.answers(t)
		if len(held) < 70 {
			t.Errorf("only %d calls were made", len(held))
		}
		for _, r := range Table() {
			if want := r.Else.Errno(); want != 0 && len(r.Clauses) == 0 && native(r) >= 0 && held[r.Name] != want {
				t.Errorf("uid %d: %s: %v, want %v", uid, r.Name, held[r.Name], want)
			}
		}
	}
}

func native(r Rule) int {
	m := machine{goarch: runtime.GOARCH}
	return m.number(r)
}

func numberOf(name string) uintptr {
	for _, r := range Table() {
		if r.Name == name {
			return uintptr(native(r))
		}
	}
	panic("no rule for " + name)
}

// callAll is the child that makes all attacks.
func callAll([]string) error {
	if err := ownTerminal(); err != nil {
		return err
	}
	signal.Ignore(unix.SIGHUP) // vhangup really hangs up the child's own terminal
	got := map[string]unix.Errno{}
	for _, a := range attacks() {
		fd, _, e := unix.RawSyscall6(numberOf(a.call), uintptr(a.args[0]), uintptr(a.args[1]), uintptr(a.args[2]), uintptr(a.args[3]), 0, 0)
		if e == 0 && fd > 2 {
			unix.Close(int(fd))
		}
		got[a.what] = e
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

func callRefused([]string) error {
	got := map[string]unix.Errno{}
	for _, r := range Table() {
		if r.Else.Errno() != 0 && len(r.Clauses) == 0 && native(r) >= 0 {
			minus := ^uintptr(0)
			_, _, got[r.Name] = unix.RawSyscall6(uintptr(native(r)), minus, minus, minus, minus, minus, minus)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// ownTerminal makes a terminal the child's controlling one, at a known number.
// The child leads a session, so opening it is enough.
func ownTerminal() error {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("cannot open /dev/ptmx: %w", err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return err
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	return unix.Dup3(slave, terminal, 0)
}
