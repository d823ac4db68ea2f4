package crash

import (
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// User namespaces are turned off under a daemon that runs: a new box is refused,
// whatever the trust, and none is made with fewer walls. What lives goes on. Done
// in a user namespace of the daemon's own, whose limit is nobody else's
// (namespaces(7), /proc/sys/user).
func TestWithoutUserNamespacesNoBoxIsMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user cannot turn them off, not even for itself: it takes the namespace's root")
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skip("nsenter(1) of util-linux is not on this host")
	}
	w := newWorld(t, harness.Ordinary)
	w.d.Kill()
	w.d.Change = func(cmd *exec.Cmd) {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: harness.OrdinaryID, HostID: harness.OrdinaryID, Size: 1}}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
	}
	w.d.Start()
	limit := func(n string) {
		t.Helper()
		cmd := exec.Command(nsenter, "--user=/proc/"+strconv.Itoa(w.d.Pid())+"/ns/user", "--setuid=0", "--setgid=0",
			"sh", "-c", "echo "+n+" > /proc/sys/user/max_user_namespaces")
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	outside := func() string {
		b, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := outside()
	for _, tier := range []string{"gvisor", "process"} { // the control: there it works
		if _, err := w.create(tier); err != nil {
			t.Fatal(err)
		}
	}
	limit("0")
	for _, s := range []map[string]any{
		{"runtime": "gvisor"}, {"runtime": "process", "trust": "trusted"}, {}, {"trust": "trusted"}, {"trust": "untrusted"},
	} {
		for path, more := range map[string]map[string]any{"/v1/boxes": {}, "/v1/execute": {"language": "bash", "code": "echo ran"}} {
			s["resource_limits"] = map[string]any{"memory": "128m", "disk": "64m"}
			body := map[string]any{"sandbox": s}
			for k, v := range more {
				body[k] = v
			}
			var got map[string]any
			status, err := w.call("POST", path, body, &got)
			if status != http.StatusServiceUnavailable || err == nil || !strings.Contains(err.Error(), "user namespace") {
				t.Errorf("%s of %v: %d, %v, %v", path, s, status, err, got)
			}
		}
	}
	if len(w.rows(false)) != 2 {
		t.Errorf("there are %d boxes", len(w.rows(false)))
	}
	w.check() // those that live go on, and nothing else is there
	limit("1000")
	for _, tier := range []string{"gvisor", "process"} {
		if _, err := w.create(tier); err != nil {
			t.Errorf("turned on again: %v", err)
		}
	}
	w.check()
	if after := outside(); after != before {
		t.Errorf("the host's own limit is %q now, and was %q", after, before)
	}
}
