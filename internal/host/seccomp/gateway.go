package seccomp

import "golang.org/x/sys/unix"

// gatewayCalls are what a process needs that moves bytes between descriptors and
// connections and is written in Go: nothing of files, programs or other processes.
//
//house:const it is the policy, written as data
var gatewayCalls = []call{
	{"read", 0, 63}, {"write", 1, 64}, {"readv", 19, 65}, {"writev", 20, 66}, {"pread64", 17, 67}, {"pwrite64", 18, 68}, {"close", 3, 57}, {"fcntl", 72, 25}, {"fstat", 5, 80}, {"pipe2", 293, 59},
	{"poll", 7, -1}, {"ppoll", 271, 73}, {"epoll_create1", 291, 20}, {"epoll_ctl", 233, 21}, {"epoll_wait", 232, -1}, {"epoll_pwait", 281, 22}, {"eventfd2", 290, 19},
	{"mmap", 9, 222}, {"munmap", 11, 215}, {"mprotect", 10, 226}, {"mremap", 25, 216}, {"madvise", 28, 233}, {"mincore", 27, 232}, {"brk", 12, 214},
	{"futex", 202, 98}, {"set_robust_list", 273, 99}, {"rseq", 334, 293}, {"membarrier", 324, 283}, {"sched_yield", 24, 124}, {"sched_getaffinity", 204, 123}, {"getcpu", 309, 168},
	{"exit", 60, 93}, {"exit_group", 231, 94}, {"getpid", 39, 172}, {"gettid", 186, 178}, {"getrusage", 98, 165}, {"prctl", 157, 167}, {"getrandom", 318, 278}, {"restart_syscall", 219, 128},
	{"rt_sigaction", 13, 134}, {"rt_sigprocmask", 14, 135}, {"rt_sigreturn", 15, 139}, {"sigaltstack", 131, 132}, {"tgkill", 234, 131},
	{"time", 201, -1}, {"gettimeofday", 96, 169}, {"clock_gettime", 228, 113}, {"clock_nanosleep", 230, 115}, {"nanosleep", 35, 101},
	{"connect", 42, 203}, {"bind", 49, 200}, {"shutdown", 48, 210}, {"getsockname", 51, 204}, {"getpeername", 52, 205}, {"getsockopt", 55, 209}, {"setsockopt", 54, 208},
	{"sendto", 44, 206}, {"sendmsg", 46, 211}, {"recvfrom", 45, 207}, {"recvmsg", 47, 212},
	{"uretprobe", 335, -1}, {"uprobe", 336, -1}, // the host's own tracing
}

// gatewayRules are those that look at arguments.
func gatewayRules() []Rule {
	return []Rule{
		{Name: "clone", AMD64: 56, ARM64: 220, Else: eperm, Why: "threads, and no process: one would outlive the gateway and keep what it holds", Clauses: []Clause{
			{When: []Cond{{0, unix.CLONE_THREAD, []uint32{unix.CLONE_THREAD}}}, Then: Allow},
		}},
		{Name: "socket", AMD64: 41, ARM64: 198, Else: noFamily, Why: "sockets with a path lead to every service of this user and this host that listens on one", Clauses: []Clause{
			{When: []Cond{{0, whole, []uint32{unix.AF_INET, unix.AF_INET6}}}, Then: Allow},
			{When: []Cond{{0, whole, []uint32{unix.AF_NETLINK}}, {2, whole, []uint32{unix.NETLINK_ROUTE}}}, Then: Allow},
		}},
	}
}

// CompileGateway makes the program that the egress gateway installs besides
// [Compile]'s, when it has become what it is: of two filters the stricter answer
// counts. It is an allow-list of its own, and what it does not name is not permitted.
func CompileGateway(goarch string) (Program, error) {
	var calls []segment
	for _, c := range gatewayCalls {
		calls = addCall(calls, goarch, c.amd64, c.arm64, segment{do: Allow})
	}
	for _, r := range gatewayRules() {
		calls = addCall(calls, goarch, r.AMD64, r.ARM64, segment{rule: &r})
	}
	return assemble(goarch, cover(calls, eperm), eperm)
}
