package seccomp

import "golang.org/x/sys/unix"

// group is a set of calls that are treated alike, whatever their arguments.
type group struct {
	name   string
	action Action
	why    string
	calls  []call
}

// call is a system call and its numbers, -1 where it does not exist.
type call struct {
	name         string
	amd64, arm64 int
}

const (
	eperm      = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	enosys     = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
	einval     = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL))
	enoent     = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOENT))
	eopnotsupp = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP))
	enomem     = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOMEM))
	noFamily   = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT))
	noProtocol = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT))
	noType     = Action(unix.SECCOMP_RET_ERRNO | uint32(unix.ESOCKTNOSUPPORT))
)

// plain is the part of the table that looks at no argument.
//
//house:const it is the policy, written as data
var plain = []group{
	{"files", Allow, "", []call{
		{"open", 2, -1}, {"openat", 257, 56}, {"openat2", 437, 437}, {"creat", 85, -1}, {"close", 3, 57}, {"close_range", 436, 436},
		{"stat", 4, -1}, {"fstat", 5, 80}, {"lstat", 6, -1}, {"newfstatat", 262, 79}, {"statx", 332, 291}, {"statfs", 137, 43}, {"fstatfs", 138, 44},
		{"access", 21, -1}, {"faccessat", 269, 48}, {"faccessat2", 439, 439}, {"readlink", 89, -1}, {"readlinkat", 267, 78}, {"getcwd", 79, 17}, {"chdir", 80, 49}, {"fchdir", 81, 50},
		{"getdents", 78, -1}, {"getdents64", 217, 61}, {"mkdir", 83, -1}, {"mkdirat", 258, 34}, {"rmdir", 84, -1}, {"unlink", 87, -1}, {"unlinkat", 263, 35},
		{"rename", 82, -1}, {"renameat", 264, 38}, {"renameat2", 316, 276}, {"link", 86, -1}, {"linkat", 265, 37}, {"symlink", 88, -1}, {"symlinkat", 266, 36},
		{"chmod", 90, -1}, {"fchmod", 91, 52}, {"fchmodat", 268, 53}, {"fchmodat2", 452, 452}, {"umask", 95, 166},
		{"utime", 132, -1}, {"utimes", 235, -1}, {"futimesat", 261, -1}, {"utimensat", 280, 88}, {"truncate", 76, 45}, {"ftruncate", 77, 46}, {"fallocate", 285, 47},
		{"getxattr", 191, 8}, {"lgetxattr", 192, 9}, {"fgetxattr", 193, 10}, {"setxattr", 188, 5}, {"lsetxattr", 189, 6}, {"fsetxattr", 190, 7}, {"listxattr", 194, 11}, {"llistxattr", 195, 12}, {"flistxattr", 196, 13},
		{"removexattr", 197, 14}, {"lremovexattr", 198, 15}, {"fremovexattr", 199, 16}, {"setxattrat", 463, 463}, {"getxattrat", 464, 464}, {"listxattrat", 465, 465}, {"removexattrat", 466, 466},
		{"sync", 162, 81}, {"fsync", 74, 82}, {"fdatasync", 75, 83}, {"syncfs", 306, 267}, {"sync_file_range", 277, 84}, {"flock", 73, 32},
		{"inotify_init", 253, -1}, {"inotify_init1", 294, 26}, {"inotify_add_watch", 254, 27}, {"inotify_rm_watch", 255, 28},
	}},
	{"reading and writing", Allow, "", []call{
		{"read", 0, 63}, {"write", 1, 64}, {"readv", 19, 65}, {"writev", 20, 66}, {"pread64", 17, 67}, {"pwrite64", 18, 68}, {"preadv", 295, 69}, {"pwritev", 296, 70}, {"preadv2", 327, 286}, {"pwritev2", 328, 287},
		{"lseek", 8, 62}, {"sendfile", 40, 71}, {"copy_file_range", 326, 285}, {"splice", 275, 76}, {"tee", 276, 77}, {"vmsplice", 278, 75}, {"readahead", 187, 213}, {"fadvise64", 221, 223},
		{"pipe", 22, -1}, {"pipe2", 293, 59}, {"dup", 32, 23}, {"dup2", 33, -1}, {"dup3", 292, 24}, {"fcntl", 72, 25},
	}},
	{"waiting for events", Allow, "", []call{
		{"poll", 7, -1}, {"ppoll", 271, 73}, {"select", 23, -1}, {"pselect6", 270, 72}, {"epoll_create", 213, -1}, {"epoll_create1", 291, 20}, {"epoll_ctl", 233, 21}, {"epoll_wait", 232, -1}, {"epoll_pwait", 281, 22}, {"epoll_pwait2", 441, 441},
		{"eventfd", 284, -1}, {"eventfd2", 290, 19}, {"signalfd", 282, -1}, {"signalfd4", 289, 74}, {"timerfd_create", 283, 85}, {"timerfd_settime", 286, 86}, {"timerfd_gettime", 287, 87},
	}},
	{"memory", Allow, "", []call{
		{"munmap", 11, 215}, {"mprotect", 10, 226}, {"mremap", 25, 216}, {"brk", 12, 214}, {"madvise", 28, 233}, {"msync", 26, 227}, {"mincore", 27, 232}, {"mseal", 462, 462},
		{"mlock", 149, 228}, {"mlock2", 325, 284}, {"munlock", 150, 229}, {"mlockall", 151, 230}, {"munlockall", 152, 231}, {"membarrier", 324, 283}, {"map_shadow_stack", 453, 453},
		{"pkey_alloc", 330, 289}, {"pkey_free", 331, 290}, {"pkey_mprotect", 329, 288},
	}},
	{"processes and threads", Allow, "", []call{
		{"fork", 57, -1}, {"vfork", 58, -1}, {"execve", 59, 221}, {"execveat", 322, 281}, {"exit", 60, 93}, {"exit_group", 231, 94}, {"wait4", 61, 260}, {"waitid", 247, 95}, {"pidfd_open", 434, 434},
		{"getpid", 39, 172}, {"getppid", 110, 173}, {"gettid", 186, 178}, {"getpgid", 121, 155}, {"getpgrp", 111, -1}, {"setpgid", 109, 154}, {"getsid", 124, 156}, {"setsid", 112, 157},
		{"set_tid_address", 218, 96}, {"set_robust_list", 273, 99}, {"get_robust_list", 274, 100}, {"rseq", 334, 293}, {"arch_prctl", 158, -1}, {"getcpu", 309, 168},
		{"futex", 202, 98}, {"futex_waitv", 449, 449}, {"futex_wake", 454, 454}, {"futex_wait", 455, 455}, {"futex_requeue", 456, 456},
		{"sched_yield", 24, 124}, {"sched_getaffinity", 204, 123}, {"sched_setaffinity", 203, 122}, {"sched_getparam", 143, 121}, {"sched_setparam", 142, 118}, {"sched_getscheduler", 145, 120}, {"sched_setscheduler", 144, 119},
		{"sched_getattr", 315, 275}, {"sched_setattr", 314, 274}, {"sched_get_priority_max", 146, 125}, {"sched_get_priority_min", 147, 126}, {"sched_rr_get_interval", 148, 127},
		{"getpriority", 140, 141}, {"setpriority", 141, 140}, {"ioprio_get", 252, 31}, {"ioprio_set", 251, 30}, {"getrlimit", 97, 163}, {"setrlimit", 160, 164}, {"prlimit64", 302, 261}, {"getrusage", 98, 165}, {"times", 100, 153},
		{"uname", 63, 160}, {"sysinfo", 99, 179}, {"getrandom", 318, 278}, {"restart_syscall", 219, 128},
	}},
	{"tracing by the host", Allow, "the host's own uprobes make these calls from a page that only the kernel can write; refusing them would let an administrator's tracing break the box", []call{
		{"uretprobe", 335, -1}, {"uprobe", 336, -1},
	}},
	{"identity", Allow, "without capabilities they read, or give up", []call{
		{"getuid", 102, 174}, {"geteuid", 107, 175}, {"getgid", 104, 176}, {"getegid", 108, 177}, {"getresuid", 118, 148}, {"getresgid", 120, 150}, {"getgroups", 115, 158}, {"setgroups", 116, 159},
		{"setfsuid", 122, 151}, {"setfsgid", 123, 152}, {"capget", 125, 90}, {"capset", 126, 91},
	}},
	{"signals", Allow, "whom they reach is the matter of the PID namespace and of Landlock's scope", []call{
		{"kill", 62, 129}, {"tkill", 200, 130}, {"tgkill", 234, 131}, {"rt_sigqueueinfo", 129, 138}, {"rt_tgsigqueueinfo", 297, 240}, {"pidfd_send_signal", 424, 424}, {"pause", 34, -1}, {"sigaltstack", 131, 132},
		{"rt_sigaction", 13, 134}, {"rt_sigprocmask", 14, 135}, {"rt_sigreturn", 15, 139}, {"rt_sigpending", 127, 136}, {"rt_sigtimedwait", 128, 137}, {"rt_sigsuspend", 130, 133},
	}},
	{"time", Allow, "", []call{
		{"time", 201, -1}, {"gettimeofday", 96, 169}, {"clock_gettime", 228, 113}, {"clock_getres", 229, 114}, {"clock_nanosleep", 230, 115}, {"nanosleep", 35, 101}, {"alarm", 37, -1}, {"getitimer", 36, 102}, {"setitimer", 38, 103},
		{"timer_create", 222, 107}, {"timer_settime", 223, 110}, {"timer_gettime", 224, 108}, {"timer_getoverrun", 225, 109}, {"timer_delete", 226, 111},
	}},
	{"sockets", Allow, "what kind of socket exists is decided when it is made", []call{
		{"bind", 49, 200}, {"listen", 50, 201}, {"accept", 43, 202}, {"accept4", 288, 242}, {"connect", 42, 203}, {"shutdown", 48, 210}, {"getsockname", 51, 204}, {"getpeername", 52, 205}, {"getsockopt", 55, 209},
		{"sendto", 44, 206}, {"sendmsg", 46, 211}, {"sendmmsg", 307, 269}, {"recvfrom", 45, 207}, {"recvmsg", 47, 212}, {"recvmmsg", 299, 243},
	}},
	{"System V and POSIX messages", Allow, "they live in the box's own IPC namespace", []call{
		{"shmget", 29, 194}, {"shmat", 30, 196}, {"shmctl", 31, 195}, {"shmdt", 67, 197}, {"semget", 64, 190}, {"semop", 65, 193}, {"semctl", 66, 191}, {"semtimedop", 220, 192}, {"msgget", 68, 186}, {"msgsnd", 69, 189}, {"msgrcv", 70, 188}, {"msgctl", 71, 187},
		{"mq_open", 240, 180}, {"mq_unlink", 241, 181}, {"mq_timedsend", 242, 182}, {"mq_timedreceive", 243, 183}, {"mq_notify", 244, 184}, {"mq_getsetattr", 245, 185},
	}},
	{"restricting oneself", Allow, "a program may only narrow what it was given", []call{
		{"landlock_create_ruleset", 444, 444}, {"landlock_add_rule", 445, 445}, {"landlock_restrict_self", 446, 446},
	}},

	{"namespaces", eperm, "a user namespace gives capabilities over kernel code that was never meant for the unprivileged (CVE-2022-0185, CVE-2024-1086)", []call{
		{"unshare", 272, 97}, {"setns", 308, 268},
	}},
	{"mounts", eperm, "the old calls and the new ones: filters that know only mount(2) miss 428 to 433 and 442", []call{
		{"mount", 165, 40}, {"umount2", 166, 39}, {"pivot_root", 155, 41}, {"chroot", 161, 51}, {"fsopen", 430, 430}, {"fsconfig", 431, 431}, {"fsmount", 432, 432}, {"fspick", 433, 433},
		{"move_mount", 429, 429}, {"open_tree", 428, 428}, {"open_tree_attr", 467, 467}, {"mount_setattr", 442, 442}, {"quotactl", 179, 60}, {"quotactl_fd", 443, 443},
	}},
	{"mount information", enosys, "findmnt reads /proc/self/mountinfo if there is no such call", []call{
		{"statmount", 457, 457}, {"listmount", 458, 458},
	}},
	{"keys", eperm, "keyrings pass through every namespace (a key of the caller's session was read in every peer that allowed them)", []call{
		{"add_key", 248, 217}, {"request_key", 249, 218}, {"keyctl", 250, 219},
	}},
	{"programs in the kernel", eperm, "the verifier of bpf, the races that userfaultfd wins, the counters of perf", []call{
		{"bpf", 321, 280}, {"userfaultfd", 323, 282}, {"perf_event_open", 298, 241},
	}},
	{"io_uring", enosys, "it makes other calls on the caller's behalf, past every filter; programs fall back to epoll", []call{
		{"io_uring_setup", 425, 425}, {"io_uring_enter", 426, 426}, {"io_uring_register", 427, 427},
	}},
	{"asynchronous I/O", enosys, "its contexts count against one number for the whole machine (fs.aio-max-nr), which one box could use up; libaio's users go on without", []call{
		{"io_setup", 206, 0}, {"io_destroy", 207, 1}, {"io_submit", 209, 2}, {"io_cancel", 210, 3}, {"io_getevents", 208, 4}, {"io_pgetevents", 333, 292},
	}},
	{"other processes", eperm, "memory and descriptors of another process, also one of the same box: its agent has the same user id", []call{
		{"ptrace", 101, 117}, {"process_vm_readv", 310, 270}, {"process_vm_writev", 311, 271}, {"pidfd_getfd", 438, 438}, {"kcmp", 312, 272}, {"process_madvise", 440, 440}, {"process_mrelease", 448, 448},
	}},
	{"the machine", eperm, "they act on the host, and are for its administrator", []call{
		{"reboot", 169, 142}, {"kexec_load", 246, 104}, {"kexec_file_load", 320, 294}, {"init_module", 175, 105}, {"finit_module", 313, 273}, {"delete_module", 176, 106}, {"swapon", 167, 224}, {"swapoff", 168, 225}, {"acct", 163, 89}, {"syslog", 103, 116}, {"vhangup", 153, 58},
		{"sethostname", 170, 161}, {"setdomainname", 171, 162}, {"iopl", 172, -1}, {"ioperm", 173, -1}, {"settimeofday", 164, 170}, {"clock_settime", 227, 112}, {"adjtimex", 159, 171}, {"clock_adjtime", 305, 266},
	}},
	{"files by handle", eperm, "a handle reaches a file outside the root (the shocker exploit of 2014); fanotify sees a whole file system", []call{
		{"open_by_handle_at", 304, 265}, {"fanotify_init", 300, 262}, {"fanotify_mark", 301, 263},
	}},
	{"names of handles", eopnotsupp, "what a file system without handles says, and every caller expects", []call{
		{"name_to_handle_at", 303, 264},
	}},
	{"placement of memory", enosys, "the machine's nodes are the host's matter; libnuma takes ENOSYS for a machine without any", []call{
		{"get_mempolicy", 239, 236}, {"set_mempolicy", 238, 237}, {"mbind", 237, 235}, {"migrate_pages", 256, 238}, {"move_pages", 279, 239}, {"set_mempolicy_home_node", 450, 450},
	}},
	{"flags in memory", enosys, "a filter cannot read them; C libraries fall back to clone", []call{
		{"clone3", 435, 435},
	}},
	{"needless", enosys, "hardly any program calls them, each is kernel code to attack, and all can be absent from a kernel", []call{
		{"memfd_secret", 447, 447}, {"cachestat", 451, 451}, {"modify_ldt", 154, -1}, {"remap_file_pages", 216, 234}, {"lsm_get_self_attr", 459, 459}, {"lsm_set_self_attr", 460, 460}, {"lsm_list_modules", 461, 461},
		{"file_getattr", 468, 468}, {"file_setattr", 469, 469}, {"listns", 470, 470}, {"rseq_slice_yield", 471, 471},
	}},
	{"obsolete", enosys, "gone from the kernel, or never in it", []call{
		{"uselib", 134, -1}, {"ustat", 136, -1}, {"sysfs", 139, -1}, {"_sysctl", 156, -1}, {"create_module", 174, -1}, {"get_kernel_syms", 177, -1}, {"query_module", 178, -1}, {"nfsservctl", 180, 42}, {"lookup_dcookie", 212, 18},
		{"getpmsg", 181, -1}, {"putpmsg", 182, -1}, {"afs_syscall", 183, -1}, {"tuxcall", 184, -1}, {"security", 185, -1}, {"vserver", 236, -1}, {"set_thread_area", 205, -1}, {"get_thread_area", 211, -1}, {"epoll_ctl_old", 214, -1}, {"epoll_wait_old", 215, -1},
	}},
}
