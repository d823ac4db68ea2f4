package egress

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// What the kernel says of the gateway's process while it carries a connection: its
// user, rights, filters on every thread, descriptors and environment.
func TestTheGatewayHasNothingToLose(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		b := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")})
		holds(d, t, f, b.ID)
		pids := harness.Gateways(t, d.Pid())
		if len(pids) != 1 {
			t.Fatalf("gateways: %v", pids)
		}
		dir := fmt.Sprintf("/proc/%d", pids[0])
		threads, err := filepath.Glob(dir + "/task/*/status")
		if err != nil || len(threads) < 2 {
			t.Fatalf("threads: %v, %v", threads, err)
		}
		const none = "0000000000000000"
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			is := func(key string) string {
				m := regexp.MustCompile(`(?m)^` + key + `:[ \t]*(.*)$`).FindStringSubmatch(string(text))
				if m == nil {
					t.Fatalf("%s does not say %s", file, key)
				}
				return strings.Join(strings.Fields(m[1]), " ")
			}
			for key, want := range map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2"} {
				if got := is(key); got != want {
					t.Errorf("%s: %s is %s, not %s", file, key, got, want)
				}
			}
			if uid := is("Uid"); strings.HasPrefix(string(u), "root") && (uid != "1895825408 1895825408 1895825408 1895825408" || is("Groups") != "") {
				t.Errorf("its user is %s with groups %q", uid, is("Groups"))
			}
		}
		if env, err := os.ReadFile(dir + "/environ"); err != nil || len(env) > 0 {
			t.Errorf("its environment: %q, %v", env, err)
		}
		if score, err := os.ReadFile(dir + "/oom_score_adj"); err != nil || strings.TrimSpace(string(score)) != "500" {
			t.Errorf("without memory it is ended by %q, %v", score, err)
		}
		fds, err := os.ReadDir(dir + "/fd")
		if err != nil || len(fds) < 5 {
			t.Fatalf("descriptors: %v, %v", fds, err)
		}
		if to, err := os.Readlink(dir + "/fd/2"); err != nil || to == link(t, d.Pid(), 2) {
			t.Errorf("its standard error is the daemon's: %s, %v", to, err)
		}
		for _, fd := range fds {
			to, err := os.Readlink(dir + "/fd/" + fd.Name())
			if err != nil {
				continue
			}
			if ok := regexp.MustCompile(`^(/dev/null|pipe:\[\d+\]|socket:\[\d+\]|(/dev/net)?/tun|/.*/network/b[a-z0-9]+|anon_inode:\[?event(poll|fd)\]?)$`).MatchString(to); !ok {
				t.Errorf("descriptor %s is %s", fd.Name(), to)
			}
		}
		if st, err := os.Stat(dir + "/mem"); err != nil || fmt.Sprint(harness.Owner(st)) != "0" {
			t.Errorf("its memory belongs to %v, %v: it can be traced", harness.Owner(st), err)
		}
		holds(d, t, f, b.ID)
	})
}

// link is what a descriptor of a process is.
func link(t *testing.T, pid, fd int) string {
	t.Helper()
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	if err != nil {
		t.Fatal(err)
	}
	return to
}
