package egress

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// hold opens connections and keeps them, each with a request whose answer does not end.
const hold = helpers + `
keep, bad = [], {}
for i in range(int(sys.argv[1])):
    try:
        s = K("api.example.com", 80, 60); s.sendall(b"GET /slow HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
        h = s.recv(4096)
        if h.startswith(b"HTTP/1.1 200"): keep.append(s)
        else: bad[h[:12]] = bad.get(h[:12], 0) + 1
    except OSError as e: bad[name(e)] = bad.get(name(e), 0) + 1
open("/tmp/held", "w").write("%d %s" % (len(keep), bad))
time.sleep(600)
`

// One box that takes all of the gateway's descriptors that it gets is denied more, and
// another one connects all the same.
func TestABoxThatTakesDescriptorsLeavesOthersTheirs(t *testing.T) {
	f := theWorld(t)
	for _, u := range []harness.User{harness.Root.Trusting(), harness.Ordinary.Trusting()} { // gVisor's kernel itself needs more
		t.Run(string(u), func(t *testing.T) {
			d := harness.StartServer(t, u, "--resolver", resolverAddr)
			d.Kill()
			d.Change = func(cmd *exec.Cmd) {
				cmd.Args = append([]string{"sh", "-c", `ulimit -n 128; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
				cmd.Path = "/bin/sh"
			}
			d.Start()
			greedy := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")})
			holds(d, t, f, greedy.ID)
			gate := harness.Gateways(t, d.Pid())
			d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", greedy.ID), map[string]any{"command": []string{"python3", "-c", hold, "150"}}, nil)
			var held int
			await(t, func() string {
				if _, err := fmt.Sscan(says(d, t, greedy.ID, `open("/tmp/held").read()`), &held); err != nil {
					return err.Error()
				}
				return "held"
			}, "held")
			if held < 20 || held > 64 {
				t.Errorf("it holds %d connections", held)
			}
			for range 2 {
				b := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")})
				holds(d, t, f, b.ID)
			}
			if now := harness.Gateways(t, d.Pid()); len(now) != 1 || now[0] != gate[0] {
				t.Errorf("gateways: %v, before %v", now, gate)
			}
			var n networkJSON
			d.Must("GET", "/v1/boxes/"+greedy.ID+"/network", nil, &n)
			if i := slices.IndexFunc(n.Traffic.Denied, func(d box.Denial) bool { return d.Code == "gateway_full" }); i < 0 || n.Traffic.Denied[i].Count < 80 {
				t.Errorf("denied: %+v", n.Traffic.Denied)
			}
		})
	}
}

// twice is for what is the same in all boxes, but for the kind of their links.
func twice(t *testing.T, fn func(t *testing.T, u harness.User)) {
	for _, u := range []harness.User{harness.Root, harness.Ordinary.Trusting()} {
		t.Run(string(u), func(t *testing.T) {
			harness.NothingLeft(t)
			fn(t, u)
		})
	}
}

// A box that ends, however it does, leaves nothing in the gateway of what it had open,
// and its connections to the world are closed.
func TestABoxThatEndsLeavesNothingInTheGateway(t *testing.T) {
	f := theWorld(t)
	twice(t, func(t *testing.T, u harness.User) {
		d := harness.StartServer(t, u, "--resolver", resolverAddr)
		stays := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")})
		holds(d, t, f, stays.ID)
		gate := harness.Gateways(t, d.Pid())[0]
		count := func() int {
			all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", gate))
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		await(t, func() string { return open(d, stays.ID) }, "0 open") // what was tried ends a little later
		before := count()
		for _, how := range []string{"destroyed", "its first process is killed"} {
			others := inhabitants(t, d.Pid())
			b := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80", "hang.example.com:443")})
			d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", b.ID), map[string]any{"command": []string{"python3", "-c", hold, "50"}}, nil)
			// Besides, connections that are being made, to a name that nobody resolves.
			d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", b.ID), map[string]any{"command": []string{"python3", "-c", helpers + `
for i in range(8): threading.Thread(target=lambda: tries(lambda: K("hang.example.com", 443, 60))).start()
`}}, nil)
			await(t, func() string { return says(d, t, b.ID, `open("/tmp/held").read()`) }, "50 {}")
			if now := count(); now < before+50 {
				t.Errorf("descriptors: %d before, %d with 50 connections", before, now)
			}
			switch how {
			case "destroyed":
				d.Must("DELETE", "/v1/boxes/"+b.ID, nil, nil)
			case "its first process is killed":
				found := 0
				for _, pid := range inhabitants(t, d.Pid()) {
					if slices.Contains(others, pid) {
						continue
					}
					found++
					if syscall.Kill(pid, syscall.SIGKILL) != nil {
						t.Logf("process %d has ended with another one", pid)
					}
				}
				if found == 0 {
					t.Fatal("no process of the box was found")
				}
			}
			left := 0
			for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				if left = count(); left <= before {
					break
				}
			}
			if left > before {
				t.Errorf("%s: descriptors: %d before, %d after", how, before, left)
			}
			holds(d, t, f, stays.ID)
		}
	})
}

// inhabitants are the processes below a daemon that are in PID namespaces other than
// this one: those of its boxes, and nobody else's.
func inhabitants(t *testing.T, daemon int) (pids []int) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		if ns, err := os.Readlink(name); err == nil && ns != own && isBelow(pid, daemon) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isBelow reports whether a process is a child of another one, or of a child of its.
func isBelow(pid, above int) bool {
	for pid > 1 && pid != above {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		f := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:])) // behind the name: proc_pid_stat(5)
		if len(f) < 2 {
			return false
		}
		pid, _ = strconv.Atoi(f[1])
	}
	return pid == above
}
