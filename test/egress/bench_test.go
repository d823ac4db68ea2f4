//go:build bench

package egress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// measure is what a client measures, in a box and outside: MiB/s, and microseconds.
const measure = helpers + `
def bench(host, port, mib=96, n=150):
    out = {}
    buf = bytearray(1 << 20)
    s = K(host, port, 60); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began = time.perf_counter(); s.sendall(b"down %d\n" % (mib << 20)); left = mib << 20
    while left: left -= s.recv_into(buf)
    out["down"] = mib / (time.perf_counter() - began)
    began = time.perf_counter(); s.sendall(b"up %d\n" % (mib << 20))
    for _ in range(mib): s.sendall(buf)
    while len(s.recv(2)) < 2: pass
    out["up"] = mib / (time.perf_counter() - began)
    rtt = []
    for _ in range(n): t = time.perf_counter(); s.sendall(b"ping\n"); s.recv(1); rtt.append(time.perf_counter() - t)
    addr = s.getpeername()[0]; s.close(); con = []
    for _ in range(n): t = time.perf_counter(); c = K(addr, port); con.append(time.perf_counter() - t); c.close()
    rtt.sort(); con.sort()
    out["rtt_p50"] = rtt[n // 2] * 1e6; out["connect_p50"] = con[n // 2] * 1e6
    return json.dumps(out)
`

type numbers struct {
	Down    float64 `json:"down"`
	Up      float64 `json:"up"`
	RTT     float64 `json:"rtt_p50"`
	Connect float64 `json:"connect_p50"`
}

// TestSpeed measures a connection through the gateway beside the same client on this
// host, directly to the world and over loopback, in turns.
func TestSpeed(t *testing.T) {
	theWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); spew(c) }()
		}
	}()
	_, port, _ := strings.Cut(l.Addr().String(), ":")
	here := func(expr string) func() string {
		return func() string {
			cmd := exec.Command("/usr/bin/python3", "-c", measure+"\nprint("+expr+")")
			cmd.Env = []string{}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			return string(bytes.TrimSpace(out))
		}
	}
	ways := []struct {
		name string
		say  func() string
	}{
		{"loopback", here(`bench("127.0.0.1", ` + port + `)`)},
		{"direct", here(`bench("` + goodAddr + `", 9000)`)},
	}
	const policy = "version: 1\nhosts:\n  - { host: raw.example.com, port: 9000, protocol: tcp }\n"
	for _, u := range []harness.User{harness.Root, harness.Root.Trusting(), harness.Ordinary, harness.Ordinary.Trusting()} {
		tier := "gvisor"
		if u.IsTrusting() {
			tier = "process"
		}
		s := newSubject(t, u, policy, "--cpu", "2")
		s.try(`exec(` + fmt.Sprintf("%q", strings.TrimPrefix(measure, helpers)) + `, globals())`)
		ways = append(ways, struct {
			name string
			say  func() string
		}{fmt.Sprintf("%s, %s", tier, strings.Fields(string(u))[0]), func() string { return s.try(`bench("raw.example.com", 9000)`) }})
	}
	all := map[string][]numbers{}
	for range 5 {
		for _, w := range ways {
			var n numbers
			if text := w.say(); json.Unmarshal([]byte(text), &n) != nil {
				t.Fatalf("%s says %s", w.name, text)
			}
			all[w.name] = append(all[w.name], n)
		}
	}
	median := func(name string, get func(numbers) float64) float64 {
		var v []float64
		for _, n := range all[name] {
			v = append(v, get(n))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	fmt.Printf("| way | download MiB/s | upload MiB/s | connect p50 us | round trip p50 us |\n|---|---|---|---|---|\n")
	for _, w := range ways {
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %.0f |\n", w.name, median(w.name, func(n numbers) float64 { return n.Down }), median(w.name, func(n numbers) float64 { return n.Up }),
			median(w.name, func(n numbers) float64 { return n.Connect }), median(w.name, func(n numbers) float64 { return n.RTT }))
	}
}
