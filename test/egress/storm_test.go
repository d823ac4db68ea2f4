package egress

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// storm is what one box does for as long as it lives: heads that never end on as many
// connections as it has descriptors, 10,000 names below a wildcard, heads that are
// too large, and connects to a host whose resolver does not answer. It writes down
// how many connections it had at the most.
const storm = helpers + `
def begin(host, port, data):
    s = socket.socket(); s.setblocking(False); s.connect_ex((A(host), port)); return [s, data]
socks, most, n = [], 0, 0
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((GW, 53)); u.setblocking(False)
while True:
    while len(socks) < 200:
        kind = len(socks) % 4
        if kind == 3: socks.append(begin("hang.example.com", 443, b""))
        elif kind == 2: socks.append(begin("api.example.com", 80, b"GET /x HTTP/1.1\r\nHost: api.example.com\r\n" + b"x: y\r\n" * 20000))
        else: socks.append(begin("api.example.com", 80, b"GET /x HTTP/1.1\r\nHost: api"))
    for _ in range(500):
        n += 1
        l = b"n%d" % n
        try: u.send(b"\0\1\1\0\0\1\0\0\0\0\0\0" + bytes([len(l)]) + l + b"\4wild\7example\3com\0\0\1\0\1")
        except OSError: pass
    try:
        while u.recv(999): pass
    except OSError: pass
    live, keep = 0, []
    for s in socks:
        try:
            if s[1]: s[1] = s[1][s[0].send(s[1]):]
            try:
                if s[0].recv(99) == b"": raise ConnectionResetError
            except BlockingIOError: pass
            live += 1; keep.append(s)
        except BlockingIOError: keep.append(s)
        except OSError as e:
            if e.errno in (107, 115): keep.append(s)
            else: s[0].close()
    socks = keep
    most = max(most, live)
    open("/tmp/storm", "w").write("%d %d" % (most, n))
    time.sleep(0.05)
`

// One box storms; another one reaches what it may, also when gateway and daemon are
// killed in the middle of it, and the gateway stays as small as its budgets make it.
func TestAStormInOneBoxAndKillsLeaveTheOthersTheirNetwork(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		quiet := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80")})
		wild := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80", "*.wild.example.com:443", "hang.example.com:443")})
		for range 2 { // each has less descriptors than a box has connections
			d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", wild.ID), map[string]any{"command": []string{"python3", "-c", storm}}, nil)
		}
		asked := 9000 // names, when it was looked at last: it rages on since then
		raging := func() {
			t.Helper()
			seen := ""
			for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
				most, names := 0, 0
				seen = says(d, t, wild.ID, `open("/tmp/storm").read()`)
				if _, err := fmt.Sscan(seen, &most, &names); err == nil && most >= 50 && names >= asked+1000 {
					asked = names
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("there is no storm: %s", seen)
				}
			}
			var n networkJSON
			d.Must("GET", "/v1/boxes/"+wild.ID+"/network", nil, &n)
			t.Logf("storm %s; %d open, %d begun, %d kinds of denials", seen, n.Traffic.Open, n.Traffic.Connections, len(n.Traffic.Denied))
			if n.Traffic.Open > 256 {
				t.Errorf("%d connections are open", n.Traffic.Open)
			}
			gate := gateways(t, d.Pid())
			if len(gate) != 1 {
				t.Fatalf("gateways: %v", gate)
			}
			if mib := harness.Resident(t, gate[0]) >> 10; mib > 256 || mib == 0 {
				t.Errorf("the gateway holds %d MiB", mib)
			} else {
				t.Logf("the gateway holds %d MiB", mib)
			}
			holds(d, t, f, quiet.ID)
		}
		raging()
		killed := gateways(t, d.Pid())
		if err := syscall.Kill(killed[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if now := gateways(t, d.Pid()); len(now) == 1 && now[0] != killed[0] {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("no gateway comes in the place of the one that was killed")
			}
		}
		waitUp(t, d, quiet.ID)
		raging()
		d.Kill()
		d.Start()
		waitUp(t, d, quiet.ID)
		raging()
	})
}
