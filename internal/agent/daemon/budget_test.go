package daemon

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/sunaba-dev/sunaba/internal/agent/agentpb"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// Every lasting box pays for its agent: these are what it may cost.
const (
	startBudget  = 10 * time.Millisecond // from its start to its first answer, the best of startTries
	startTries   = 20                    // at least: others may have the processors, so as many as fit into startTime
	startTime    = time.Minute
	memoryBudget = 8 << 20 // resident, when it is idle after some use
)

func TestAgentAnswersWithinItsBudget(t *testing.T) {
	best, tries := time.Hour, 0
	for end := time.Now().Add(startTime); tries < startTries || best > startBudget && time.Now().Before(end); tries++ {
		begun := time.Now()
		r := begin(t, harness.Users()[0])
		if _, err := r.Hello(deadline(t), connect.NewRequest(&pb.HelloRequest{})); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(begun))
		r.end()
	}
	t.Logf("the best of %d starts took %v", tries, best)
	if best > startBudget {
		t.Errorf("the best of %d starts took %v, at most %v", tries, best, startBudget)
	}
}

func TestAgentFitsIntoItsMemory(t *testing.T) {
	r := begin(t, harness.Users()[0])
	if _, err := r.Hello(deadline(t), connect.NewRequest(&pb.HelloRequest{})); err != nil {
		t.Fatal(err)
	}
	if got := r.follow(t, r.sh("echo hello")); string(got.out) != "hello\n" {
		t.Fatalf("got %q", got.out)
	}
	p := r.dir + "/mebibyte"
	r.write(t, p, bytes.Repeat([]byte{1}, 1<<20), nil)
	if got := r.read(t, p, 0, -1); len(got) != 1<<20 {
		t.Fatalf("got %d bytes", len(got))
	}
	used := statusKB(t, r.cmd.Process.Pid, "VmRSS") << 10
	rss := used
	until(func() bool {
		rss = statusKB(t, r.cmd.Process.Pid, "VmRSS") << 10
		return rss <= memoryBudget
	})
	t.Logf("resident: %d KiB in use, %d KiB idle (file %d, anonymous %d)", used>>10, rss>>10,
		statusKB(t, r.cmd.Process.Pid, "RssFile"), statusKB(t, r.cmd.Process.Pid, "RssAnon"))
	if rss > memoryBudget || used > 2*memoryBudget {
		t.Errorf("%d KiB are resident, at most %d; in use %d, at most %d", rss>>10, memoryBudget>>10, used>>10, 2*memoryBudget>>10)
	}
}

// statusKB is a number of kB in /proc/PID/status.
func statusKB(t testing.TB, pid int, key string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			var n int
			if _, err := fmt.Sscanf(v, "%d kB", &n); err == nil {
				return n
			}
		}
	}
	t.Fatalf("/proc/%d/status has no %s", pid, key)
	return 0
}
