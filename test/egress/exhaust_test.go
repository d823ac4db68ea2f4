package egress

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// hold opens connections and keeps them, each with a request whose answer does not end.
const hold = helpers + `
keep, bad = [], {}
for i in range(int(sys.argv[1])):
    try:
        s = K("api.example.com", 80, 6); s.sendall(b"GET /slow HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
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
