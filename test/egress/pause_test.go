package egress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// Rules that change while a box stands still are in force before it moves again, also
// for a connection that it has open.
func TestRulesChangeWhileABoxStandsStill(t *testing.T) {
	f := theWorld(t)
	for _, u := range []harness.User{harness.Root, harness.Root.Trusting()} { // an ordinary user's boxes of tier process are not paused
		t.Run(string(u), func(t *testing.T) {
			d := harness.StartServer(t, u, "--resolver", resolverAddr)
			b := made(d, map[string]any{"sandbox": sandbox(u, "api.example.com:80", "open.example.com:80")})
			d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", b.ID), map[string]any{"command": []string{"python3", "-c", helpers + `
a = K("api.example.com", 80, 300); a.sendall(b"GET /slow HTTP/1.1\r\nHost: api.example.com\r\n\r\n"); a.recv(1)
b = K("open.example.com", 80, 300); b.sendall(b"GET /slow HTTP/1.1\r\nHost: open.example.com\r\n\r\n"); b.recv(1)
open("/tmp/open", "w").write("open")
n = 0
while True:
    n += 1
    try: a.sendall(b"GET /late HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
    except OSError as e: break
    time.sleep(0.05)
b.settimeout(1)
try:
    while b.recv(9999): pass
    r = "ended"
except OSError as e: r = name(e)
open("/tmp/closed", "w").write("closed, the other one: " + r)
time.sleep(600)
`}}, nil)
			await(t, func() string { return says(d, t, b.ID, `open("/tmp/open").read()`) }, "open")
			d.Must("POST", "/v1/boxes/"+b.ID+"/pause", nil, nil)
			settle(t, f)
			var n networkJSON
			d.Must("PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": map[string]any{"mode": "allowlist", "allowlist": []string{"open.example.com:80"}}}, &n)
			if n.Traffic.Generation != 2 {
				t.Errorf("%+v", n)
			}
			settle(t, f) // what was on its way before the change
			d.Must("POST", "/v1/boxes/"+b.ID+"/resume", nil, nil)
			await(t, func() string { return says(d, t, b.ID, `open("/tmp/closed").read()`) }, "closed, the other one: timeout")
			if got := says(d, t, b.ID, `D("api.example.com")`); got != denied {
				t.Errorf("a name that was taken away: %s", got)
			}
			for _, s := range f.take(t) {
				if strings.Contains(s.What, "late") {
					t.Errorf("after the change: %v", s)
				}
			}
			if got := says(d, t, b.ID, `G("/x", to="open.example.com", host="open.example.com")`); got != works {
				t.Errorf("what is allowed: %s", got)
			}
		})
	}
}
