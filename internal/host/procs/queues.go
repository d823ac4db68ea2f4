package procs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// QueuesOver reports whether more than limit bytes wait in sockets of the box
// whose /proc is given: in netlink sockets, and in IP sockets, connections that
// nobody has accepted yet among them. No control group counts them: an answer
// of netlink belongs to nobody (netlink_alloc_large_skb and nlmsg_new take
// memory without __GFP_ACCOUNT), a connection only from accept(2) on
// (sk_clone in Linux net/core/sock.c), and in version 1 not even then.
//
// IP sockets are listed only if all of the machine hold more than the limit
// (sockstat), because the list costs a walk through the tables of all.
func QueuesOver(proc *os.File, limit int64) bool {
	net := fmt.Sprintf("/proc/self/fd/%d/1/net/", proc.Fd())
	waiting := column(net+"netlink", func(f []string) int64 { return number(f, 4, 10) })
	if waiting > limit {
		return true
	}
	machine := column(net+"sockstat", func(f []string) int64 {
		if len(f) < 2 || f[0] != "TCP:" && f[0] != "UDP:" {
			return 0
		}
		return number(f, len(f)-1, 10) * int64(os.Getpagesize())
	})
	if waiting+machine <= limit {
		return false
	}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		waiting += column(net+table, inSocket)
	}
	return waiting > limit
}

// inSocket is what waits in the socket of a line of /proc/net/tcp or udp, both
// ways: tx_queue:rx_queue in hexadecimal, proc_net_tcp in the kernel's
// documentation. Of a listening socket (state 0A) they are numbers of connections.
func inSocket(f []string) int64 {
	if len(f) < 5 || f[3] == "0A" {
		return 0
	}
	tx, rx, ok := strings.Cut(f[4], ":")
	if !ok {
		return 0
	}
	return number([]string{tx}, 0, 16) + number([]string{rx}, 0, 16)
}

// column sums up what of says of each line of a file. One that is not there, as
// IPv6's where the kernel has none, holds nothing.
func column(file string, of func(fields []string) int64) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	var sum int64
	for line := range strings.Lines(string(b)) {
		sum += of(strings.Fields(line))
	}
	return sum
}

// number is 0 for what is none, such as a heading.
func number(f []string, i, base int) int64 {
	if i >= len(f) {
		return 0
	}
	n, err := strconv.ParseInt(f[i], base, 64)
	if err != nil {
		return 0
	}
	return n
}
