package egress

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// knocking asks the one host for requests and the other for connections, as fast as it can.
const knocking = helpers + `
def one():
    n = 0
    while True:
        try:
            s = K("api.example.com", 80, 2)
            for _ in range(20): s.sendall(b"GET /x HTTP/1.1\r\nHost: api.example.com\r\n\r\n"); s.recv(4096)
            s.close()
        except OSError: time.sleep(0.002)
        n += 1
        if n % 10 == 0: open("/tmp/knocked", "w").write(str(n))
def two():
    while True:
        try: s = K("raw.example.com", 5432, 2); s.sendall(b"x"); s.recv(1); s.close()
        except OSError: time.sleep(0.002)
for f in (one, one, two, two): threading.Thread(target=f).start()
`

// While a box connects as fast as it can, its rules change again and again: when a
// change has been answered, nothing new comes to a host that it took away.
func TestNothingIsDialledByRulesThatWereTakenAway(t *testing.T) {
	f := theWorld(t)
	twice(t, func(t *testing.T, u harness.User) {
		d := harness.StartServer(t, u, "--resolver", resolverAddr)
		open := map[string]any{"mode": "allowlist", "rules": map[string]any{"version": 1, "hosts": []any{
			map[string]any{"host": "api.example.com", "port": 80}, map[string]any{"host": "raw.example.com", "port": 5432, "protocol": "tcp"},
		}}}
		shut := map[string]any{"mode": "allowlist"}
		s := sandbox(u)
		s["network"] = open
		b := made(d, map[string]any{"sandbox": s})
		d.Must("POST", fmt.Sprintf("/v1/boxes/%s/processes", b.ID), map[string]any{"command": []string{"python3", "-c", knocking}}, nil)
		put := func(n any) (out networkJSON) {
			d.Must("PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": n}, &out)
			return out
		}
		rounds, slowest := 25, time.Duration(0)
		for range rounds {
			n := put(open)
			f.take(t)
			deadline := time.Now().Add(2 * time.Minute)
			for seen := 0; seen < 4; { // both hosts are spoken to
				for _, s := range f.take(t) {
					if s.Kind == "data" {
						seen++
					}
				}
				if time.Now().After(deadline) {
					t.Fatalf("nothing comes, under %+v", n)
				}
				time.Sleep(2 * time.Millisecond)
			}
			begun := time.Now()
			put(shut)
			slowest = max(slowest, time.Since(begun))
			rest(t, f, 25) // what is on its way; by rules that still hold there is no rest
			time.Sleep(60 * time.Millisecond)
			for _, s := range f.take(t) {
				t.Errorf("after the change: %v", s)
			}
		}
		t.Logf("%d changes, the slowest took %v", 2*rounds, slowest)
		if slowest > 20*time.Second { // a tenth of a second also where the host is busy
			t.Errorf("a change took %v", slowest)
		}
		// Two at once: one is after the other, and what the box reaches is what is said.
		var both sync.WaitGroup
		for range 10 {
			both.Add(2)
			for _, n := range []any{open, shut} {
				go func() {
					defer both.Done()
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
					defer cancel()
					if _, err := d.Call(ctx, "PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": n}, nil); err != nil {
						t.Error(err)
					}
				}()
			}
			both.Wait()
		}
		var n networkJSON
		d.Must("GET", "/v1/boxes/"+b.ID+"/network", nil, &n)
		want := denied
		if strings.Contains(string(n.Rules), "api.example.com") {
			want = "rcode 0, 1 answers"
		}
		if got := says(d, t, b.ID, `D("api.example.com")`); got != want || n.Traffic.Generation != uint64(2*rounds+21) {
			t.Errorf("generation %d, rules %s, and the box hears %s", n.Traffic.Generation, n.Rules, got)
		}
		// What is refused changes nothing.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		long := strings.Repeat(`&`, 250)
		var hosts []any
		for i := range 31 {
			var rules []any
			for r := range 64 {
				rules = append(rules, map[string]any{"paths": []string{fmt.Sprintf("/%d%s", r, long)}})
			}
			hosts = append(hosts, map[string]any{"host": fmt.Sprintf("a%d.example.com", i), "port": 80, "rules": rules})
		}
		for what, bad := range map[string]any{
			"a policy that is too long": map[string]any{"mode": "allowlist", "rules": map[string]any{"version": 1, "hosts": append(hosts, hosts...)}},
			"a private network":         map[string]any{"mode": "allowlist", "rules": map[string]any{"version": 1, "hosts": []any{map[string]any{"cidr": privateAddr + "/32", "port": 6379, "protocol": "tcp", "sink": "internal"}}}},
			"its mapped form":           map[string]any{"mode": "allowlist", "rules": map[string]any{"version": 1, "hosts": []any{map[string]any{"cidr": "::ffff:" + privateAddr + "/128", "port": 6379, "protocol": "tcp", "sink": "internal"}}}},
			"a name with a network":     map[string]any{"mode": "allowlist", "rules": map[string]any{"version": 1, "hosts": []any{map[string]any{"host": "db.example.com", "cidr": "10.20.30.0/24", "port": 5432, "protocol": "tcp", "sink": "internal"}}}},
			"resolvers":                 map[string]any{"mode": "allowlist", "rules": map[string]any{"version": 1, "dns": map[string]any{"resolvers": []string{evilAddr}}}},
			"more connections":          map[string]any{"mode": "allowlist", "rules": map[string]any{"version": 1, "limits": map[string]any{"conns": 4096}}},
			"a file":                    map[string]any{"mode": "allowlist", "policy": "/etc/passwd"},
			"everything":                map[string]any{"mode": "allowlist", "allowlist": []string{"*.com"}},
			"no object":                 []any{},
			"two lists":                 map[string]any{"mode": "allowlist", "allowlist": []string{"a.example.com"}, "rules": map[string]any{"version": 1}},
			"an open network":           map[string]any{"mode": "open"},
		} {
			if status, err := d.Call(ctx, "PUT", "/v1/boxes/"+b.ID+"/network", map[string]any{"network": bad}, nil); err == nil || status/100 != 4 {
				t.Errorf("%s: %d, %.300v", what, status, err)
			}
		}
		var after networkJSON
		if d.Must("GET", "/v1/boxes/"+b.ID+"/network", nil, &after); after.Traffic.Generation != n.Traffic.Generation || string(after.Rules) != string(n.Rules) {
			t.Errorf("after refusals: %+v", after)
		}
	})
}
