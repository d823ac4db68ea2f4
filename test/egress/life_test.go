package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// sandbox is what a box that lasts is asked to be.
func sandbox(u harness.User, allow ...string) map[string]any {
	s := map[string]any{"network": map[string]any{"mode": "allowlist", "allowlist": allow}}
	if u.IsTrusting() {
		s["trust"], s["resource_limits"] = "trusted", map[string]any{"disk": "100m"}
	}
	return s
}

type boxJSON struct {
	ID    string `json:"id"`
	Tier  string `json:"tier"`
	Start string `json:"start"`
}

type networkJSON struct {
	Mode    string          `json:"mode"`
	Up      bool            `json:"up"`
	Rules   json.RawMessage `json:"rules"`
	Traffic box.Traffic     `json:"traffic"`
}

// made makes a box.
func made(d *harness.Server, req map[string]any) (b boxJSON) {
	d.Must("POST", "/v1/boxes", req, &b)
	return b
}

// says evaluates an expression in a box, by a program of its own.
func says(d *harness.Server, t *testing.T, id, expr string) string {
	t.Helper()
	var out struct {
		Stdout *string `json:"stdout"`
		Stderr *string `json:"stderr"`
	}
	d.Must("POST", "/v1/boxes/"+id+"/exec", map[string]any{"command": []string{"python3", "-c", helpers + "\nprint(tries(lambda: " + expr + "))"}}, &out)
	if out.Stdout == nil {
		t.Fatalf("no output: %v", out)
	}
	return strings.TrimSpace(*out.Stdout)
}

const (
	allowedHere = `G("/x", more="Connection: close\r\n")`
	deniedHere  = `D("evil.example.net")`
	works       = "HTTP/1.1 200 OK"
	denied      = "rcode 3, 0 answers"
)

// holds makes sure that a box reaches what its rules allow, and nothing else.
func holds(d *harness.Server, t *testing.T, f *farm, id string) {
	t.Helper()
	if got := says(d, t, id, deniedHere); got != denied {
		t.Errorf("a denied name: %s", got)
	}
	for _, s := range f.take(t) {
		if strings.Contains(s.What, "evil") {
			t.Errorf("it caused %v", s)
		}
	}
	if got := says(d, t, id, allowedHere); got != works {
		t.Errorf("an allowed host: %s", got)
	}
}

func gateways(t *testing.T, daemon int) []int {
	t.Helper()
	return harness.Gateways(t, daemon)
}

func eachDaemon(t *testing.T, fn func(t *testing.T, d *harness.Server, u harness.User, f *farm), args ...string) {
	f := theWorld(t)
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		d := harness.StartServer(t, u, append([]string{"--resolver", resolverAddr}, args...)...)
		fn(t, d, u, f)
	})
}

// A gateway that is killed takes every connection along, and the next one has the
// rules in force.
func TestAKilledGatewayComesBack(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		b := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")})
		holds(d, t, f, b.ID)
		for range 2 {
			before := gateways(t, d.Pid())
			if len(before) != 1 {
				t.Fatalf("gateways of the daemon: %v", before)
			}
			// A connection that is open over the gateway's end; that it was is the control.
			d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", b.ID), map[string]any{"command": []string{"python3", "-c", helpers + `
s = K("api.example.com", 80); s.settimeout(60); s.sendall(b"GET /slow HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
s.recv(4096); r = "open"
while r == "open":
    open("/tmp/open", "w").write(r); time.sleep(0.1)
    try: s.send(b"x")
    except OSError as e: r = name(e)
open("/tmp/open", "w").write(r)
`}}, nil)
			await(t, func() string { return says(d, t, b.ID, `open("/tmp/open").read()`) }, "open")
			await(t, func() string { return open(d, b.ID) }, "1 open") // others have ended by now, or end
			if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			await(t, func() string { return says(d, t, b.ID, `open("/tmp/open").read()`) }, "ConnectionResetError", "BrokenPipeError")
			waitUp(t, d, b.ID)
			holds(d, t, f, b.ID)
			if after := gateways(t, d.Pid()); len(after) != 1 || after[0] == before[0] {
				t.Errorf("gateways: %v, after %v", after, before)
			}
		}
	})
}

// A gateway that ends a second time has its boxes divided between two: the third end is
// one box's alone.
func TestBoxesOfAGatewayThatEndsAgainAreDivided(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		ids := []string{made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")}).ID, made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")}).ID}
		kill := func(want int) (pid int) {
			t.Helper()
			for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if all := gateways(t, d.Pid()); len(all) == want {
					pid = all[0]
					break
				} else if time.Now().After(deadline) {
					t.Fatalf("gateways: %v, want %d", all, want)
				}
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(3 * time.Minute); slices.Contains(gateways(t, d.Pid()), pid); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it does not end")
				}
			}
			return pid
		}
		both := func() {
			t.Helper()
			for _, id := range ids {
				waitUp(t, d, id)
				holds(d, t, f, id)
			}
		}
		both()
		kill(1)
		both()
		kill(1)
		both()
		var after [2]networkJSON
		for _, id := range ids {
			d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", id), map[string]any{"command": []string{"python3", "-c", helpers + `
s = K("api.example.com", 80); s.sendall(b"GET /slow HTTP/1.1\r\nHost: api.example.com\r\n\r\n"); s.recv(1); open("/tmp/open", "w").write("open"); time.sleep(600)
`}}, nil)
			await(t, func() string { return says(d, t, id, `open("/tmp/open").read()`) }, "open")
			await(t, func() string { return open(d, id) }, "1 open") // others have ended by now, or end
		}
		if all := gateways(t, d.Pid()); len(all) != 2 {
			t.Fatalf("gateways: %v", all)
		}
		kill(2)
		await(t, func() string { return metric(t, d, "sunaba_gateways_ended_total") }, "3")
		for i, id := range ids {
			d.Must("GET", "/v1/boxes/"+id+"/network", nil, &after[i])
		}
		if got := metric(t, d, "sunaba_boxes_without_gateway"); got != "0" && got != "1" {
			t.Errorf("boxes without a gateway: %s", got)
		}
		if !after[0].Up && !after[1].Up {
			t.Errorf("after the end of one of two gateways: %+v", after)
		}
		both()
		await(t, func() string { // what was tried meanwhile ends a little later
			open := 0
			for i, id := range ids {
				d.Must("GET", "/v1/boxes/"+id+"/network", nil, &after[i])
				open += after[i].Traffic.Open
			}
			return fmt.Sprint(open, " outlived the end of one of two gateways")
		}, "1 outlived the end of one of two gateways")
	})
}

// open says how many connections a box has open.
func open(d *harness.Server, id string) string {
	var n networkJSON
	d.Must("GET", "/v1/boxes/"+id+"/network", nil, &n)
	return fmt.Sprint(n.Traffic.Open, " open")
}

// metric is the value of one of the daemon's.
func metric(t *testing.T, d *harness.Server, name string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", d.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", d.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s in\n%s", name, all)
	return ""
}

// await waits until something says one of the texts.
func await(t *testing.T, says func() string, want ...string) {
	t.Helper()
	got := ""
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = says(); slices.Contains(want, got) {
			return
		}
	}
	t.Fatalf("it says %q, not %q", got, want)
}

func waitUp(t *testing.T, d *harness.Server, id string) {
	t.Helper()
	var n networkJSON
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if d.Must("GET", "/v1/boxes/"+id+"/network", nil, &n); n.Up {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the network does not come up: %+v", n)
		}
	}
}

// Boxes outlive the daemon, and so does what they may reach; without it they reach
// nothing.
func TestAKilledDaemonLeavesBoxesWithTheirRules(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		b := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:443")})
		var n networkJSON
		d.Must("PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": map[string]any{"mode": "allowlist", "allowlist": []string{"api.example.com:80"}}}, &n)
		if n.Traffic.Generation != 2 || !n.Up {
			t.Errorf("after a change: %+v", n)
		}
		holds(d, t, f, b.ID)
		before := gateways(t, d.Pid())
		// A program that tries while nobody is there, and writes down what happens.
		var p struct {
			PID int `json:"pid"`
		}
		d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", b.ID), map[string]any{"command": []string{"python3", "-c", helpers + `
for i in range(6000): open("/tmp/tries", "a").write(D("api.example.com", wait=0.3) + "\n"); time.sleep(0.1)
`}}, &p)
		const tries = `str(sorted(set(open("/tmp/tries").read().split("\n"))))`
		await(t, func() string { return fmt.Sprint(strings.Contains(says(d, t, b.ID, tries), "rcode 0, 1")) }, "true")
		// How far a busy host lets it try meanwhile nobody can ask: if it has not heard the
		// silence, there is another one, which is longer.
		for silence := 3 * time.Second; ; silence *= 3 {
			d.Kill()
			for deadline := time.Now().Add(2 * time.Minute); slices.ContainsFunc(before, harness.Alive); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the gateway outlives the daemon")
				}
			}
			time.Sleep(silence)
			d.Start()
			waitUp(t, d, b.ID)
			if strings.Contains(says(d, t, b.ID, tries), "timeout") || silence > 20*time.Second {
				break
			}
			before = gateways(t, d.Pid())
		}
		holds(d, t, f, b.ID)
		if got := says(d, t, b.ID, `C("api.example.com", 443)`); got == "connected" {
			t.Error("the rules are older ones")
		}
		if got := says(d, t, b.ID, tries); !strings.Contains(got, "timeout") || !strings.Contains(got, "rcode 0, 1") {
			t.Errorf("while nobody was there, and before: %s", got)
		}
		d.Must("GET", "/v1/boxes/"+b.ID+"/network", nil, &n)
		told := func(d box.Denial) bool { return d.Name == "evil.example.net" && d.Fix != "" }
		if n.Traffic.Generation != 2 || !slices.ContainsFunc(n.Traffic.Denied, told) {
			t.Errorf("network: %+v", n)
		}
	})
}

// A box that was paused has its network when it goes on, also with another daemon.
func TestAPausedBoxHasItsNetworkAgain(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		b := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if status, err := d.Call(ctx, "POST", "/v1/boxes/"+b.ID+"/pause", nil, nil); status == 501 && u == harness.Ordinary.Trusting() {
			t.Skip("its boxes cannot be paused without a control group")
		} else if err != nil {
			t.Fatal(err)
		}
		d.Kill()
		d.Start()
		var n networkJSON
		if d.Must("GET", "/v1/boxes/"+b.ID+"/network", nil, &n); n.Mode != "allowlist" || n.Up {
			t.Errorf("while it stands: %+v", n)
		}
		d.Must("POST", "/v1/boxes/"+b.ID+"/resume", nil, nil)
		waitUp(t, d, b.ID)
		holds(d, t, f, b.ID)
		d.Must("POST", "/v1/boxes/"+b.ID+"/pause", nil, nil)
		holds(d, t, f, b.ID) // whose calls resume it
	})
}

// A change of the rules closes what it does not allow before it answers.
func TestAChangeOfRulesClosesConnections(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		b := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80", "open.example.com:80")})
		var p struct {
			PID int `json:"pid"`
		}
		d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", b.ID), map[string]any{"command": []string{"python3", "-c", helpers + `
a = K("api.example.com", 80, 300); b = K("open.example.com", 80, 300)
for s, h in ((a, b"api"), (b, b"open")): s.sendall(b"GET /slow HTTP/1.1\r\nHost: " + h + b".example.com\r\n\r\n"); s.recv(1)
open("/tmp/open", "w").write("open")
try: r = "got %d" % len(a.recv(999)); r = "got %d" % len(a.recv(999)); r = "got %d" % len(a.recv(999))
except OSError as e: r = name(e)
b.settimeout(0.5)
try: o = "got"; b.recv(999); b.recv(999); b.recv(999)
except OSError as e: o = name(e)
open("/tmp/closed", "w").write(r + " " + o)
`}}, &p)
		for deadline := time.Now().Add(3 * time.Minute); says(d, t, b.ID, `open("/tmp/open").read()`) != "open"; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the connections do not open")
			}
		}
		var n networkJSON
		d.Must("GET", "/v1/boxes/"+b.ID+"/network", nil, &n)
		if n.Traffic.Open != 2 {
			t.Errorf("open before: %+v", n.Traffic)
		}
		d.Must("PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": map[string]any{"mode": "allowlist", "allowlist": []string{"open.example.com:80"}}}, &n)
		if n.Traffic.Open != 1 || n.Traffic.Generation != 2 {
			t.Errorf("open after: %+v", n.Traffic)
		}
		got := ""
		for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if got = says(d, t, b.ID, `open("/tmp/closed").read()`); got != "FileNotFoundError" && got != "" {
				break
			}
		}
		if !strings.HasPrefix(got, "ConnectionResetError") || !strings.HasSuffix(got, "timeout") {
			t.Errorf("the connection that is no longer allowed, and the other one: %s", got)
		}
		if got := says(d, t, b.ID, `D("api.example.com")`); got != denied {
			t.Errorf("a name that is no longer allowed: %s", got)
		}
		// What is told of the rules can be sent back, with more or less in it.
		var told struct {
			Network map[string]any  `json:"network"`
			Rules   json.RawMessage `json:"rules"`
		}
		var again networkJSON
		d.Must("GET", "/v1/boxes/"+b.ID+"/network", nil, &told)
		d.Must("PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": told.Network}, &again)
		if again.Traffic.Generation != 3 || !bytes.Equal(again.Rules, told.Rules) || !strings.Contains(string(told.Rules), "open.example.com:80") {
			t.Errorf("%v was sent back and is %s, not %s", told.Network, again.Rules, told.Rules)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for _, bad := range []map[string]any{{"mode": "none"}, {"mode": "allowlist", "allowlist": []string{"*"}}, {"mode": "allowlist", "x": 1}} {
			if status, err := d.Call(ctx, "PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": bad}, nil); err == nil {
				t.Errorf("%v is accepted: %d", bad, status)
			}
		}
		if got := says(d, t, b.ID, `G("/x", to="open.example.com", host="open.example.com")`); got != works {
			t.Errorf("after changes that were refused: %s", got)
		}
		plain := sandbox(u)
		delete(plain, "network")
		none := made(d, map[string]any{"sandbox": plain})
		if _, err := d.Call(ctx, "PUT", "/v1/boxes/"+none.ID+"/network", map[string]any{"network": map[string]any{"mode": "allowlist"}}, nil); err == nil {
			t.Error("a box without a network got one")
		}
		if got := says(d, t, none.ID, `C("api.example.com", 80)`); got != "gaierror" {
			t.Errorf("a box without a network: %s", got)
		}
	})
}

// A warm box has the rules of who leases it, and a link that nobody answers before.
func TestAWarmBoxHasTheRulesOfItsLease(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		var b boxJSON
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
			s := sandbox(u, "api.example.com:80")
			s["lifecycle"] = map[string]any{"reuse": true, "pool_size": 1}
			if b = made(d, map[string]any{"sandbox": s}); b.Start == "warm" {
				break
			}
			d.Must("DELETE", "/v1/boxes/"+b.ID, nil, nil)
			if time.Now().After(deadline) {
				t.Fatal("no start is a warm one")
			}
		}
		holds(d, t, f, b.ID)
	}, "--warm", "2")
}

// A copy with its memory goes on with a network of its own.
func TestAForkHasItsOwnNetwork(t *testing.T) {
	f := theWorld(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		d := harness.StartServer(t, u, "--resolver", resolverAddr)
		s := sandbox(u, "api.example.com:80")
		s["image"] = "base"
		b := made(d, map[string]any{"sandbox": s})
		holds(d, t, f, b.ID)
		var forks struct {
			Forks []struct {
				Box   *boxJSON        `json:"box"`
				Error json.RawMessage `json:"error"`
			} `json:"forks"`
		}
		d.Must("POST", "/v1/boxes/"+b.ID+"/fork", map[string]any{"count": 2}, &forks)
		for _, c := range forks.Forks {
			if c.Box == nil {
				t.Fatalf("no fork: %s", c.Error)
			}
			holds(d, t, f, c.Box.ID)
		}
		var n networkJSON
		d.Must("PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": map[string]any{"mode": "allowlist"}}, &n)
		if got := says(d, t, b.ID, allowedHere); got != "gaierror" {
			t.Errorf("the first box reaches: %s", got)
		}
		holds(d, t, f, forks.Forks[0].Box.ID)
	})
}

func TestAResultSaysWhatWasDeniedAndHowToAllowIt(t *testing.T) {
	theWorld(t)
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		rep := harness.Report(t, u, "--network", "allowlist", "--allow", "api.example.com:80", "--resolver", resolverAddr, "--",
			"python3", "-c", helpers+`
print(tries(lambda: G("/x"))); [D("evil.example.net") for _ in range(3)]; C("api.example.com", 443)`)
		if rep.Stdout == nil || *rep.Stdout != works+"\n" || rep.Network.Generation != 1 || rep.Network.Connections == 0 || rep.Network.Received == 0 {
			t.Fatalf("%+v", rep)
		}
		want := map[string]box.Denial{}
		for _, d := range rep.Network.Denied {
			want[d.Kind+" "+d.Name] = d
		}
		if d := want["dns evil.example.net"]; d.Count != 3 || d.Code != "host_not_allowed" || d.Fix != "evil.example.net:443" {
			t.Errorf("the denied name: %+v", rep.Network.Denied)
		}
		if d := want["connect api.example.com"]; d.Count == 0 || d.Port != 443 || d.Fix == "" {
			t.Errorf("the denied port: %+v", rep.Network.Denied)
		}
	})
}

// What doctor says of the network is what the other tests find.
func TestDoctorSaysThatThereIsANetwork(t *testing.T) {
	theWorld(t)
	harness.EachUser(t, func(t *testing.T, u harness.User) {
		r := harness.Run(t, u, "doctor", "-o", "json")
		var d struct {
			Network struct {
				Usable bool       `json:"usable"`
				Steps  []box.Step `json:"steps"`
			} `json:"network"`
		}
		if err := json.Unmarshal([]byte(r.Stdout), &d); err != nil {
			t.Fatal(err)
		}
		for _, s := range d.Network.Steps {
			t.Logf("%s: %s, %s", s.Name, s.State, s.Detail)
		}
		if !d.Network.Usable || len(d.Network.Steps) != 4 {
			t.Errorf("%+v", d.Network)
		}
	})
}

// A run that is killed takes its gateway along.
func TestAKilledRunLeavesNoGateway(t *testing.T) {
	theWorld(t)
	harness.EachUserAndTier(t, func(t *testing.T, u harness.User) {
		harness.NothingLeft(t)
		s := newSubject(t, u, policyText)
		if got := s.try(`G("/public/ok")`); got != works {
			t.Fatalf("before: %s", got)
		}
		pids := gateways(t, s.cmd.Process.Pid)
		if len(pids) != 1 {
			t.Fatalf("gateways of the run: %v", pids)
		}
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Minute); harness.Alive(pids[0]); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the gateway is left")
			}
		}
	})
}
