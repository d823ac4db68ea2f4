package crash

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// firstOf is the pid of a box's first process.
func firstOf(t *testing.T, u harness.User, id string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(harness.State(t, u), "boxes", id, "first"))
	var first struct{ PID int }
	if err == nil {
		err = json.Unmarshal(b, &first)
	}
	if err != nil || first.PID <= 1 {
		t.Fatal(err, first)
	}
	return first.PID
}

// A box that says nothing while a daemon starts is not a lost one.
func TestABoxThatIsSlowAtAStartIsKeptAndComesBack(t *testing.T) {
	w := newWorld(t, harness.Users()[0])
	var pids []int
	for _, tier := range []string{"gvisor", "process"} {
		k, err := w.create(tier)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, firstOf(t, w.d.User, k.id))
	}
	w.d.Kill()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	w.d.Start()
	w.all(func(k *known) {
		if status, err := w.call("POST", path(k)+"/exec", map[string]any{"shell": "true"}, nil); status != http.StatusServiceUnavailable {
			t.Errorf("a call to a box (%s) that says nothing: %d, %v", k.tier, status, err)
		}
		var r row
		if _, err := w.call("GET", path(k), nil, &r); err != nil || r.Phase != "running" || !strings.Contains(r.Detail, "cannot be reached") {
			t.Errorf("it is told as %+v, %v", r, err)
		}
	})
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range w.boxes {
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

// A box that ends while no daemon is there is told as lost, with which part of it ended
// and how.
func TestABoxThatEndsWhileNoDaemonIsThereIsToldWithItsEnd(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		w := newWorld(t, u)
		for _, tier := range []string{"gvisor", "process"} {
			if _, err := w.create(tier); err != nil {
				t.Fatal(err)
			}
		}
		w.d.Kill()
		parts := map[string]string{"gvisor": "runsc-sandbox", "process": "sunaba-agentd"}
		for _, k := range w.boxes {
			first := firstOf(t, u, k.id)
			victim := 0
			all, _ := filepath.Glob("/proc/" + strconv.Itoa(first) + "/task/*/children")
			for _, f := range all {
				b, _ := os.ReadFile(f)
				for _, s := range strings.Fields(string(b)) {
					if line, _ := os.ReadFile("/proc/" + s + "/cmdline"); strings.HasPrefix(string(line), parts[k.tier]) {
						victim, _ = strconv.Atoi(s)
					}
				}
			}
			if victim == 0 {
				t.Fatalf("no %s in box %s", parts[k.tier], k.id)
			}
			if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(patience); syscall.Kill(first, 0) == nil; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the first process of box %s (%s) lives on", k.id, k.tier)
				}
			}
		}
		w.d.Start()
		rows := w.rows(true)
		want := map[string]string{"gvisor": "it ended before: the guest's kernel ended: signal 9 (killed)", "process": "it ended before: the agent ended: signal 9 (killed)"}
		for _, k := range w.boxes {
			if r := rows[k.id]; r.Phase != "destroyed" || r.Reason != "lost" || !strings.Contains(r.Detail, want[k.tier]) {
				t.Errorf("%s: %+v", k.tier, r)
			}
		}
		w.boxes = nil
		w.reality()
	})
}

// Two binaries of different contents: the later one takes up what the earlier one
// made, whose agents stay the earlier ones.
func TestALaterBinaryTakesUpTheBoxesOfAnEarlierOne(t *testing.T) {
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		w := newWorld(t, u)
		for _, tier := range []string{"gvisor", "process"} {
			k, err := w.create(tier)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.background(k, newRand(t)); err != nil {
				t.Fatal(err)
			}
			if err := w.typeIn(k, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.d.Kill()
		later := filepath.Join(t.TempDir(), "sunaba")
		b, err := os.ReadFile(harness.Binary(t))
		if err == nil {
			err = os.WriteFile(later, append(b, "later"...), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		harness.Give(t, u, later)
		w.d.Binary = later
		w.d.Start()
		for _, k := range w.boxes {
			w.inside(k)
		}
		w.d.Kill()
		w.d.Binary = ""
		w.d.Start()
		w.check() // and back
	})
}

// Few descriptors: what runs goes on, nobody is lost, and it passes.
func TestADaemonWithFewDescriptorsLosesNothing(t *testing.T) {
	w := newWorld(t, harness.Users()[0])
	for _, tier := range []string{"gvisor", "process"} {
		k, err := w.create(tier)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.background(k, newRand(t)); err != nil {
			t.Fatal(err)
		}
	}
	w.d.Kill()
	w.d.Start()
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("prlimit(1) of util-linux is not on this host")
	}
	limit := func(n string) {
		cmd := exec.Command(prlimit, "--pid", strconv.Itoa(w.d.Pid()), "--nofile="+n+":")
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	limit("3") // below all that it may give up again: no new one
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	if resp, err := client.Get(w.d.URL + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("it was reached without a descriptor left")
	}
	client.CloseIdleConnections()
	limit("1024")
	w.check()
	if strings.Contains(w.d.Log(), "panic") {
		t.Errorf("it panicked:\n%s", w.d.Log())
	}
}
