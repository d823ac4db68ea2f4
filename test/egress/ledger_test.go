package egress

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

// asGiven is a request by an address that the program remembers; beside it is one
// that no name ever had.
const (
	remember   = `open("/tmp/addr", "w").write(A("api.example.com") + " " + A("n1.wild.example.com"))`
	remembered = `[G("/x", to=a, host=h) for a, h in zip(open("/tmp/addr").read().split(), ["api.example.com", "n1.wild.example.com"])]`
	neverGiven = `C(open("/tmp/addr").read().split()[0][:-1] + "7" if not open("/tmp/addr").read().split()[0].endswith("7") else "198.18.77.78", 80)`
	bothWork   = `['` + works + `', '` + works + `']`
)

// A program that asked once and remembers the address need not ask again, whichever
// gateway or daemon there is, and in a copy of its box.
func TestAnAddressThatAProgramRemembersStaysGood(t *testing.T) {
	theWorld(t)
	twice(t, func(t *testing.T, u harness.User) {
		d := harness.StartServer(t, u, "--resolver", resolverAddr)
		s := sandbox(u, "api.example.com:80", "*.wild.example.com:80")
		s["image"] = "base" // whose copies go on
		b := made(d, map[string]any{"sandbox": s})
		says(d, t, b.ID, remember)
		good := func(id, when string) {
			t.Helper()
			if got := says(d, t, id, remembered); got != bothWork {
				t.Errorf("%s: %s", when, got)
			}
			if got := says(d, t, id, neverGiven); got == "connected" {
				t.Errorf("%s: an address that was never given leads somewhere", when)
			}
		}
		good(b.ID, "at first")
		for _, pid := range gateways(t, d.Pid()) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		await(t, func() string { return says(d, t, b.ID, `C("198.18.0.1", 53)`) }, "connected")
		good(b.ID, "with another gateway")
		d.Kill()
		d.Start()
		waitUp(t, d, b.ID)
		good(b.ID, "with another daemon")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var copies struct {
			Forks []struct {
				Box *boxJSON `json:"box"`
			} `json:"forks"`
		}
		if status, err := d.Call(ctx, "POST", "/v1/boxes/"+b.ID+"/fork", map[string]any{"count": 1}, &copies); u.IsTrusting() && status == 501 {
			return // a box of host processes has no copy that runs
		} else if err != nil || len(copies.Forks) != 1 || copies.Forks[0].Box == nil {
			t.Fatal(err, copies)
		}
		good(copies.Forks[0].Box.ID, "in a copy")
	})
}

// What a box may send in its life is no more for a gateway or daemon that was killed.
func TestABudgetIsSpentForEveryGateway(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *harness.Server, u harness.User, f *farm) {
		s := sandbox(u)
		s["network"] = map[string]any{"mode": "allowlist", "rules": map[string]any{"version": 1, "hosts": []any{
			map[string]any{"host": "api.example.com", "port": 80, "tx_bytes": 3000},
			map[string]any{"host": "open.example.com", "port": 80},
		}}}
		b := made(d, map[string]any{"sandbox": s})
		const big = `G("/x", more="X-Fill: " + "a" * 1900 + "\r\n")`
		if got := says(d, t, b.ID, big); got != works {
			t.Fatalf("within the budget: %s", got)
		}
		spent := func(when string) {
			t.Helper()
			if got := says(d, t, b.ID, big); got == works || strings.Contains(got, "timeout") {
				t.Errorf("%s: %s", when, got)
			}
			if got := says(d, t, b.ID, `G("/x", to="open.example.com", host="open.example.com")`); got != works {
				t.Errorf("%s, another host: %s", when, got)
			}
		}
		spent("at first")
		for _, pid := range gateways(t, d.Pid()) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		await(t, func() string { return says(d, t, b.ID, `C("198.18.0.1", 53)`) }, "connected")
		spent("with another gateway")
		d.Kill()
		d.Start()
		waitUp(t, d, b.ID)
		spent("with another daemon")
	})
}
