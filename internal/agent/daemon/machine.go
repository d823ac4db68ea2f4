package daemon

import (
	"context"
	"os"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
)

// machine is the service of that name.
type machine struct{ *agent }

func (m machine) Hello(context.Context, *connect.Request[pb.HelloRequest]) (*connect.Response[pb.HelloResponse], error) {
	users := []string{userOrdinary}
	if m.args.root {
		users = append(users, userRoot)
	}
	return connect.NewResponse(&pb.HelloResponse{Protocol: 1, Users: users, Dir: m.args.dir}), nil
}

// Metrics tells what the box sees of itself. Where its kernel is the host's, and
// /proc/meminfo with it, memory is what the programs have resident, and no total
// is known.
func (m machine) Metrics(context.Context, *connect.Request[pb.MetricsRequest]) (*connect.Response[pb.MetricsResponse], error) {
	res := &pb.MetricsResponse{UptimeMillis: uint64(time.Since(m.started).Milliseconds())}
	var err error
	m.slots.do(func() { err = m.measure(res) })
	if err != nil {
		return nil, failed("measure", "the box", err)
	}
	return connect.NewResponse(res), nil
}

func (m machine) measure(res *pb.MetricsResponse) error {
	var st unix.Statfs_t
	if err := unix.Statfs(m.args.dir, &st); err != nil {
		return err
	}
	size := uint64(st.Bsize)
	res.DiskTotalBytes, res.DiskUsedBytes = st.Blocks*size, (st.Blocks-min(st.Bfree, st.Blocks))*size
	res.FilesTotal, res.FilesUsed = st.Files, st.Files-min(st.Ffree, st.Files)
	if m.args.root {
		info, err := os.ReadFile("/proc/meminfo")
		if err != nil {
			return err
		}
		res.MemoryTotalBytes = kilobytes(info, "MemTotal:")
		res.MemoryUsedBytes = res.MemoryTotalBytes - min(res.MemoryTotalBytes, kilobytes(info, "MemAvailable:"))
	}
	s := &scan{buf: make([]byte, 32<<10), line: make([]byte, 1024), self: os.Getpid()}
	page := uint64(os.Getpagesize())
	res.AgentRssBytes = s.resident(s.self) * page
	if !m.args.root {
		res.MemoryUsedBytes = res.AgentRssBytes
	}
	cpu := time.Duration(0)
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return err
		}
		cpu += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	s.each(func(pid int) {
		if pid == s.self || pid == 1 {
			return
		}
		f := statFields(s.read(pid, "stat"))
		if len(f) == 0 || f[0] == 'Z' {
			return
		}
		res.Processes++
		if !m.args.root {
			res.MemoryUsedBytes += s.resident(pid) * page
		}
		for i := 11; i <= 14; i++ { // utime, stime and those of children that were waited for
			cpu += time.Duration(fieldAt(f, i)) * (time.Second / userHz)
		}
	})
	res.CpuMicros = uint64(cpu.Microseconds())
	return nil
}

// userHz is the unit of times in /proc: USER_HZ is 100 on all that Go runs on,
// time(7).
const userHz = 100

// kilobytes is a value of /proc/meminfo, in bytes.
func kilobytes(info []byte, key string) uint64 {
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, key); ok {
			return fieldAt([]byte(strings.TrimSpace(v)), 0) << 10
		}
	}
	return 0
}
