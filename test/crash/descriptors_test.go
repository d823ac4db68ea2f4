//go:build crash

package crash

import (
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// A box whose first process has no descriptor left when a daemon comes is not a lost
// one: it can be reached when there are some again.
func TestABoxWithoutDescriptorsAtAStartIsKeptAndComesBack(t *testing.T) {
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("prlimit(1) of util-linux is not on this host")
	}
	w := newWorld(t, harness.Users()[0])
	for _, tier := range []string{"gvisor", "process"} {
		if _, err := w.create(tier); err != nil {
			t.Fatal(err)
		}
	}
	w.d.Kill()
	limit := func(k *known, args ...string) string {
		t.Helper()
		cmd := exec.Command(prlimit, append([]string{"--pid", strconv.Itoa(firstOf(t, w.d.User, k.id))}, args...)...)
		cmd.Env = []string{}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	before := map[*known]string{}
	for _, k := range w.boxes {
		before[k] = limit(k, "--nofile", "--output=SOFT", "--noheadings", "--raw")
		limit(k, "--nofile=3:") // fewer than it has: no new one
	}
	w.d.Start()
	for _, k := range w.boxes {
		var r row
		if _, err := w.call("GET", path(k), nil, &r); err != nil || r.Phase != "running" || !strings.Contains(r.Detail, "cannot be reached") {
			t.Errorf("box %s (%s) is told as %+v, %v", k.id, k.tier, r, err)
		}
	}
	for _, k := range w.boxes {
		limit(k, "--nofile="+before[k]+":")
		for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			if status, err := w.call("POST", path(k)+"/exec", map[string]any{"shell": "true"}, nil); err == nil {
				break
			} else if status != http.StatusServiceUnavailable || time.Now().After(end) {
				t.Fatalf("box %s (%s) does not come back: %d, %v", k.id, k.tier, status, err)
			}
		}
	}
	w.check()
}
