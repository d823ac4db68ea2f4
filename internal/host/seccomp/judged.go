package seccomp

import "golang.org/x/sys/unix"

// Masks of arguments, and values that golang.org/x/sys does not name.
const (
	boxUser, unchanged = 1000, whole // host.BoxUser, and -1: leave it as it is
	othersOnly         = "the namespace has one user, and EINVAL for all others; programs expect what the kernel says to the unprivileged"

	whole    = 0xffffffff
	typeMask = 0xf // the type of a socket without SOCK_CLOEXEC and SOCK_NONBLOCK

	// Each flag that makes a namespace. CLONE_NEWTIME is not among them: in
	// clone(2) its bit is part of the signal's number.
	newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

	iptSetReplace, iptAddCounters = 64, 65     // linux/netfilter_ipv4/ip_tables.h, and the same for IPv6
	arptSetReplace, arptCounters  = 96, 97     // linux/netfilter_arp/arp_tables.h
	ebtSetEntries, ebtCounters    = 128, 129   // linux/netfilter_bridge/ebtables.h
	perLinux, addrNoRandomize     = 0, 0x40000 // linux/personality.h
	askPersonality                = 0xffffffff

	// Every flag of SECCOMP_SET_MODE_FILTER but TSYNC, LOG, SPEC_ALLOW and
	// TSYNC_ESRCH.
	filterFlags = whole &^ (unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_LOG |
		unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH)
)

// judged is the part of the table that looks at arguments.
//
//house:const it is the policy, written as data
var judged = []Rule{
	{Name: "clone", AMD64: 56, ARM64: 220, Group: "processes and threads", Else: eperm, Why: "a new process or thread, but no new namespace; see the group namespaces", Clauses: []Clause{
		{When: []Cond{{0, newNamespace, []uint32{0}}}, Then: Allow},
	}},
	{Name: "mmap", AMD64: 9, ARM64: 222, Group: "memory", Else: enomem,
		Why:     "huge pages of the machine's pool (vm.nr_hugepages): no memory limit counts them, and there is one pool for all; ENOMEM is what an empty pool says",
		Clauses: []Clause{{When: []Cond{{3, unix.MAP_HUGETLB, []uint32{0}}}, Then: Allow}}},
	{Name: "memfd_create", AMD64: 319, ARM64: 279, Group: "memory", Else: enosys,
		Why: "the same pool, by a file; ENOSYS is what a kernel without huge pages says", Clauses: []Clause{
			{When: []Cond{{1, unix.MFD_HUGETLB, []uint32{0}}}, Then: Allow},
		}},
	{Name: "socket", AMD64: 41, ARM64: 198, Group: "sockets", Else: noFamily,
		Why: "a family is a protocol stack of its own, loaded on demand: AF_VSOCK reaches the hypervisor and is in no namespace; AF_ALG, AF_PACKET, AF_XDP and the netfilter end of AF_NETLINK (CVE-2024-1086) are where exploits begin",
		Clauses: []Clause{
			{When: []Cond{{0, whole, []uint32{unix.AF_UNIX}}}, Then: Allow},
			{When: []Cond{{0, whole, []uint32{unix.AF_NETLINK}}, {2, whole, []uint32{unix.NETLINK_ROUTE}}}, Then: Allow,
				Why: "getifaddrs asks it for addresses; changing any needs a capability"},
			{When: []Cond{{0, whole, []uint32{unix.AF_INET, unix.AF_INET6}}, {1, typeMask, []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}}, {2, whole, []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}}}, Then: Allow},
			{When: []Cond{{0, whole, []uint32{unix.AF_INET, unix.AF_INET6}}, {1, typeMask, []uint32{unix.SOCK_RAW, unix.SOCK_PACKET}}}, Then: eperm,
				Why: "packets of one's own making; what the kernel says without CAP_NET_RAW"},
			{When: []Cond{{0, whole, []uint32{unix.AF_INET, unix.AF_INET6}}, {1, typeMask, []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}}}, Then: noProtocol,
				Why: "MPTCP, SCTP, DCCP (CVE-2017-6074), L2TP, UDP-Lite, ICMP: programs fall back to TCP or do without"},
			{When: []Cond{{0, whole, []uint32{unix.AF_INET, unix.AF_INET6}}}, Then: noType},
		}},
	{Name: "socketpair", AMD64: 53, ARM64: 199, Group: "sockets", Else: noFamily, Why: "only UNIX sockets come in pairs that programs use; TIPC has them too", Clauses: []Clause{
		{When: []Cond{{0, whole, []uint32{unix.AF_UNIX}}}, Then: Allow},
	}},
	{Name: "setsockopt", AMD64: 54, ARM64: 208, Group: "sockets", Else: Allow, Clauses: []Clause{
		{When: []Cond{{1, whole, []uint32{unix.SOL_IP}}, {2, whole, []uint32{iptSetReplace, iptAddCounters, arptSetReplace, arptCounters, ebtSetEntries, ebtCounters}}}, Then: eperm,
			Why: "tables of packet filters (CVE-2021-22555)"},
		{When: []Cond{{1, whole, []uint32{unix.SOL_IPV6}}, {2, whole, []uint32{iptSetReplace, iptAddCounters}}}, Then: eperm,
			Why: "the same for IPv6"},
		{When: []Cond{{1, whole, []uint32{unix.SOL_SOCKET}}, {2, whole, []uint32{unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF}}}, Then: eperm,
			Why: "programs in the kernel: their machine code counts against one number for the whole machine (net.core.bpf_jit_limit), which the sockets of one box could use up, and then no box gets its own filter; EPERM is what the kernel says when it is used up"},
		{When: []Cond{{1, whole, []uint32{unix.SOL_TCP}}, {2, whole, []uint32{unix.TCP_ULP}}}, Then: enoent,
			Why: "another protocol on top of TCP, in the kernel (CVE-2023-0461); OpenSSL encrypts by itself if there is none"},
	}},
	{Name: "ioctl", AMD64: 16, ARM64: 29, Group: "reading and writing", Else: Allow, Clauses: []Clause{
		{When: []Cond{{1, whole, []uint32{unix.TIOCSTI}}}, Then: eperm, Why: "types into the terminal, where the operator's shell reads it (CVE-2017-5226)"},
		{When: []Cond{{1, whole, []uint32{unix.TIOCLINUX}}}, Then: eperm, Why: "pastes into the console; the sibling of TIOCSTI (CVE-2023-1523)"},
		{When: []Cond{{1, whole, []uint32{unix.TIOCSETD}}}, Then: eperm, Why: "loads a line discipline (CVE-2017-2636)"},
	}},
	{Name: "prctl", AMD64: 157, ARM64: 167, Group: "processes and threads", Else: einval,
		Why: "an allow-list of options; the others do not exist, as on an older kernel. Left out: PR_SET_MM, PR_SET_MEMORY_MERGE (shares pages with neighbours, which can be timed), PR_SCHED_CORE, PR_SET_IO_FLUSHER, PR_SET_SYSCALL_USER_DISPATCH, PR_SET_PTRACER",
		Clauses: []Clause{
			{When: []Cond{{0, whole, []uint32{
				unix.PR_SET_VMA, unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_PDEATHSIG, unix.PR_GET_PDEATHSIG, // often called, so first
				unix.PR_GET_DUMPABLE, unix.PR_SET_DUMPABLE, unix.PR_SET_CHILD_SUBREAPER, unix.PR_GET_CHILD_SUBREAPER,
				unix.PR_SET_TIMERSLACK, unix.PR_GET_TIMERSLACK, unix.PR_SET_THP_DISABLE, unix.PR_GET_THP_DISABLE,
				unix.PR_GET_TID_ADDRESS, unix.PR_GET_TIMING, unix.PR_SET_TIMING, unix.PR_GET_AUXV, unix.PR_FUTEX_HASH, unix.PR_MCE_KILL_GET,
				unix.PR_SET_NO_NEW_PRIVS, unix.PR_GET_NO_NEW_PRIVS, unix.PR_SET_SECCOMP, unix.PR_GET_SECCOMP,
				unix.PR_CAPBSET_READ, unix.PR_CAPBSET_DROP, unix.PR_CAP_AMBIENT, unix.PR_SET_KEEPCAPS, unix.PR_GET_KEEPCAPS, unix.PR_SET_SECUREBITS, unix.PR_GET_SECUREBITS,
				unix.PR_SET_MDWE, unix.PR_GET_MDWE, unix.PR_GET_SPECULATION_CTRL, unix.PR_SET_SPECULATION_CTRL, unix.PR_SET_TSC, unix.PR_GET_TSC,
				unix.PR_GET_SHADOW_STACK_STATUS, unix.PR_SET_SHADOW_STACK_STATUS, unix.PR_LOCK_SHADOW_STACK_STATUS,
				unix.PR_SVE_SET_VL, unix.PR_SVE_GET_VL, unix.PR_SME_SET_VL, unix.PR_SME_GET_VL, unix.PR_SET_TAGGED_ADDR_CTRL, unix.PR_GET_TAGGED_ADDR_CTRL, // arm64's
				unix.PR_PAC_RESET_KEYS, unix.PR_PAC_SET_ENABLED_KEYS, unix.PR_PAC_GET_ENABLED_KEYS,
			}}}, Then: Allow},
		}},
	{Name: "personality", AMD64: 135, ARM64: 92, Group: "processes and threads", Else: eperm,
		Why: "reading it and turning address randomization off (sanitizers do, for themselves); READ_IMPLIES_EXEC and the ABIs of other systems are refused",
		Clauses: []Clause{
			{When: []Cond{{0, whole, []uint32{perLinux, addrNoRandomize, askPersonality}}}, Then: Allow},
		}},
	{Name: "seccomp", AMD64: 317, ARM64: 277, Group: "restricting oneself", Else: Allow, Clauses: []Clause{
		{When: []Cond{{0, whole, []uint32{unix.SECCOMP_SET_MODE_FILTER}}, {1, filterFlags, []uint32{0}}}, Then: Allow},
		{When: []Cond{{0, whole, []uint32{unix.SECCOMP_SET_MODE_FILTER}}}, Then: einval,
			Why: "a listener, which answers other processes' calls in the kernel's place; an older kernel does not know the flag"},
	}},
	{Name: "mknod", AMD64: 133, ARM64: -1, Group: "files", Else: Allow, Clauses: []Clause{
		{When: []Cond{{1, unix.S_IFMT, []uint32{unix.S_IFCHR, unix.S_IFBLK}}}, Then: eperm, Why: "devices; files, pipes and sockets are made"},
	}},
	{Name: "mknodat", AMD64: 259, ARM64: 33, Group: "files", Else: Allow, Clauses: []Clause{
		{When: []Cond{{2, unix.S_IFMT, []uint32{unix.S_IFCHR, unix.S_IFBLK}}}, Then: eperm, Why: "as mknod"},
	}},
	{Name: "setuid", AMD64: 105, ARM64: 146, Group: "identity", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{0, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "setgid", AMD64: 106, ARM64: 144, Group: "identity", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{0, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "setreuid", AMD64: 113, ARM64: 145, Group: "identity", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{0, whole, []uint32{boxUser, unchanged}}, {1, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "setregid", AMD64: 114, ARM64: 143, Group: "identity", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{0, whole, []uint32{boxUser, unchanged}}, {1, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "setresuid", AMD64: 117, ARM64: 147, Group: "identity", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{0, whole, []uint32{boxUser, unchanged}}, {1, whole, []uint32{boxUser, unchanged}}, {2, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "setresgid", AMD64: 119, ARM64: 149, Group: "identity", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{0, whole, []uint32{boxUser, unchanged}}, {1, whole, []uint32{boxUser, unchanged}}, {2, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "chown", AMD64: 92, ARM64: -1, Group: "files", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{1, whole, []uint32{boxUser, unchanged}}, {2, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "fchown", AMD64: 93, ARM64: 55, Group: "files", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{1, whole, []uint32{boxUser, unchanged}}, {2, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "lchown", AMD64: 94, ARM64: -1, Group: "files", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{1, whole, []uint32{boxUser, unchanged}}, {2, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
	{Name: "fchownat", AMD64: 260, ARM64: 54, Group: "files", Else: eperm, Why: othersOnly, Clauses: []Clause{{When: []Cond{{2, whole, []uint32{boxUser, unchanged}}, {3, whole, []uint32{boxUser, unchanged}}}, Then: Allow}}},
}
