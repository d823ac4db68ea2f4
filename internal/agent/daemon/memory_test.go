package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// eater is a shell command that takes some memory, says so, and waits.
const eater = `x=$(head -c 60000000 /dev/zero | tr '\0' x); echo full; sleep 600`

func TestLargestProgramEndsWhenMemoryIsOut(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		small := r.sh("echo up; sleep 600")
		r.waitOutput(t, small, "up\n")
		largest := r.sh(eater)
		r.waitOutput(t, largest, "full\n")
		if err := r.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if got := r.follow(t, largest); got.end.By != pb.End_BY_MEMORY || got.end.Status != uint32(syscall.SIGKILL) {
			t.Errorf("the largest: %v", got.end)
		}
		t.Logf("it took %v, with the %v that something in the background may hold a stream", time.Since(begun), drainTime)
		// One below the program that was started, in a session of its own.
		below := r.sh("setsid sh -c '" + `x=$(head -c 60000000 /dev/zero | tr "\\0" x); echo full; sleep 600` + "'; echo it said $?; exit 3")
		r.waitOutput(t, below, "full\n")
		if err := r.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if got := r.follow(t, below); got.end.By != pb.End_BY_MEMORY || got.end.Status != 3<<8 || string(got.out) != "full\nit said 137\n" {
			t.Errorf("the one above the largest: %q, %v", got.out, got.end)
		}
		r.signal(t, small, syscall.SIGTERM, true)
		if got := r.follow(t, small); got.end.By != 0 || got.end.Status != uint32(syscall.SIGTERM) {
			t.Errorf("the small one: %v", got.end)
		}
	})
}

// alike is a program that holds much memory in as much address space as another
// process has, whatever that does.
const alike = `
import ctypes, time
c = ctypes.CDLL(None); c.mmap.restype = ctypes.c_void_p; c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
full = bytearray(150 << 20)
for i in range(0, len(full), 4096): full[i] = 1
size = lambda pid: int(open("/proc/%%s/statm" %% pid).read().split()[0]) * 4096
at, n, said = 0, 0, False
for _ in range(600000):
    d = size(%d) - size("self")
    if d > 0 and n == 0: at, n = c.mmap(None, d, 0, 0x4022, -1, 0), d
    elif d: c.munmap(at, n); n = 0
    elif not said: said = print("full", flush=True) is None
    time.sleep(0.0005)
`

// A program that makes itself as large as the agent, which passes over what may be a
// part of itself, is ended all the same, and not the next one.
func TestAProgramOfTheAgentsSizeIsStillTheLargest(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := begin(t, u)
		small := r.sh(eater)
		r.waitOutput(t, small, "full\n")
		largest := r.sh("exec python3 -c '" + fmt.Sprintf(alike, r.cmd.Process.Pid) + "'")
		r.waitOutput(t, largest, "full\n")
		if err := r.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if got := r.follow(t, largest); got.end.By != pb.End_BY_MEMORY || got.end.Status != uint32(syscall.SIGKILL) {
			t.Errorf("the largest: %v", got.end)
		}
		r.signal(t, small, syscall.SIGTERM, true)
		if got := r.follow(t, small); got.end.By != 0 {
			t.Errorf("the small one: %v", got.end)
		}
	})
}

// TestFirstProcessReapsAllAndNoneOfItsOwnTwice: as PID 1 the agent is the parent
// of every orphan.
func TestFirstProcessReapsAllAndNoneOfItsOwnTwice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a namespace of process numbers; run the tests as root")
	}
	dir := harness.Dir(t, harness.Root)
	r := beginIn(t, harness.Root, dir, func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/usr/bin/unshare"
	})
	for range 20 {
		pid := r.sh("for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.0$i & ); done; (true & ); exit 9")
		if got := r.follow(t, pid); got.end.Status != 9<<8 {
			t.Errorf("got %v", got.end)
		}
	}
	const count = `ls /proc | grep -c '^[0-9]'; for p in /proc/[0-9]*; do grep -l '^State:.Z' $p/status 2>/dev/null; done; echo $$ >/dev/null; cat /proc/1/comm`
	var got told
	for end := time.Now().Add(longest); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = r.follow(t, r.sh(count)); string(got.out) == fmt.Sprintf("%d\n%s\n", 4, Argv) {
			return // itself, sh, ls, grep
		}
	}
	t.Errorf("left: %q", got.out)
}
