package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhatAProgramHears states the policy a second time, in numbers and
// without the table: a slip in the table must not pass because the test reads
// the same slip.
func TestWhatAProgramHears(t *testing.T) {
	const amd64, i386 = unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386
	m := machineFor(t, "amd64")
	for _, c := range []struct {
		what string
		call systemCall
		want Action
	}{
		{"read", systemCall{0, amd64, [6]uint64{}}, Allow},
		{"execve", systemCall{59, amd64, [6]uint64{}}, Allow},
		{"io_uring_setup", systemCall{425, amd64, [6]uint64{1}}, Refuse(unix.ENOSYS)},
		{"bpf", systemCall{321, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"userfaultfd", systemCall{323, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"perf_event_open", systemCall{298, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"add_key", systemCall{248, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"request_key", systemCall{249, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"keyctl", systemCall{250, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"mount", systemCall{165, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"umount2", systemCall{166, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"pivot_root", systemCall{155, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"open_tree", systemCall{428, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"fsopen", systemCall{430, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"mount_setattr", systemCall{442, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"ptrace attach", systemCall{101, amd64, [6]uint64{16, 1}}, Refuse(unix.EPERM)},
		{"ptrace traceme", systemCall{101, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"process_vm_readv", systemCall{310, amd64, [6]uint64{1}}, Refuse(unix.EPERM)},
		{"finit_module", systemCall{313, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"reboot", systemCall{169, amd64, [6]uint64{}}, Refuse(unix.EPERM)},
		{"unshare", systemCall{272, amd64, [6]uint64{unix.CLONE_NEWUSER}}, Refuse(unix.EPERM)},
		{"clone3", systemCall{435, amd64, [6]uint64{}}, Refuse(unix.ENOSYS)},
		{"fork by clone", systemCall{56, amd64, [6]uint64{uint64(unix.SIGCHLD) | unix.CLONE_CHILD_SETTID | unix.CLONE_CHILD_CLEARTID}}, Allow},
		{"a thread", systemCall{56, amd64, [6]uint64{0x3d0f00}}, Allow},
		{"clone into a user namespace", systemCall{56, amd64, [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}}, Refuse(unix.EPERM)},
		{"the same with the upper half set", systemCall{56, amd64, [6]uint64{1<<63 | unix.CLONE_NEWUSER}}, Refuse(unix.EPERM)},
		{"AF_UNIX", systemCall{41, amd64, [6]uint64{1, 1 | unix.SOCK_CLOEXEC, 0}}, Allow},
		{"TCP", systemCall{41, amd64, [6]uint64{2, 1 | unix.SOCK_NONBLOCK, 6}}, Allow},
		{"UDP over IPv6", systemCall{41, amd64, [6]uint64{10, 2, 17}}, Allow},
		{"MPTCP", systemCall{41, amd64, [6]uint64{2, 1, 262}}, Refuse(unix.EPROTONOSUPPORT)},
		{"SCTP", systemCall{41, amd64, [6]uint64{2, 1, 132}}, Refuse(unix.EPROTONOSUPPORT)},
		{"a raw socket", systemCall{41, amd64, [6]uint64{2, 3, 1}}, Refuse(unix.EPERM)},
		{"NETLINK_ROUTE", systemCall{41, amd64, [6]uint64{16, 3 | unix.SOCK_CLOEXEC, 0}}, Allow},
		{"NETLINK_NETFILTER", systemCall{41, amd64, [6]uint64{16, 3, 12}}, Refuse(unix.EAFNOSUPPORT)},
		{"AF_PACKET", systemCall{41, amd64, [6]uint64{17, 3, 0}}, Refuse(unix.EAFNOSUPPORT)},
		{"AF_ALG", systemCall{41, amd64, [6]uint64{38, 5, 0}}, Refuse(unix.EAFNOSUPPORT)},
		{"AF_VSOCK", systemCall{41, amd64, [6]uint64{40, 1, 0}}, Refuse(unix.EAFNOSUPPORT)},
		{"AF_XDP", systemCall{41, amd64, [6]uint64{44, 3, 0}}, Refuse(unix.EAFNOSUPPORT)},
		{"TIOCSTI", systemCall{16, amd64, [6]uint64{0, 0x5412}}, Refuse(unix.EPERM)},
		{"TIOCSTI with bit 32 (CVE-2019-10063)", systemCall{16, amd64, [6]uint64{0, 1<<32 | 0x5412}}, Refuse(unix.EPERM)},
		{"TIOCLINUX with all upper bits", systemCall{16, amd64, [6]uint64{0, 0xffffffff0000541c}}, Refuse(unix.EPERM)},
		{"TIOCGWINSZ", systemCall{16, amd64, [6]uint64{0, 0x5413}}, Allow},
		{"a character device", systemCall{133, amd64, [6]uint64{0, 0o20666}}, Refuse(unix.EPERM)},
		{"a named pipe", systemCall{133, amd64, [6]uint64{0, 0o10666}}, Allow},
		{"a filter with a listener", systemCall{317, amd64, [6]uint64{1, 8}}, Refuse(unix.EINVAL)},
		{"a filter", systemCall{317, amd64, [6]uint64{1, 1}}, Allow},
		{"READ_IMPLIES_EXEC", systemCall{135, amd64, [6]uint64{0x400000}}, Refuse(unix.EPERM)},
		{"number 600", systemCall{600, amd64, [6]uint64{}}, Refuse(unix.ENOSYS)},
		{"number -1", systemCall{0xffffffff, amd64, [6]uint64{}}, Refuse(unix.ENOSYS)},
		{"x32 getpid", systemCall{x32 | 39, amd64, [6]uint64{}}, Kill},
		{"x32 ioctl", systemCall{x32 | 514, amd64, [6]uint64{}}, Kill},
		{"32-bit getpid", systemCall{20, i386, [6]uint64{}}, Kill},
		{"32-bit socketcall", systemCall{102, i386, [6]uint64{}}, Kill},
	} {
		if got, _ := m.run(t, c.call); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
